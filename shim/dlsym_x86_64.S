/* shim/dlsym_x86_64.S
 * dlsym and dlvsym, unversioned, so that callers bound to GLIBC_2.2.5 and GLIBC_2.34 both arrive here.
 * Whatever is not answered here is forwarded with a tail jump: the real dlsym finds out from its return address who asks,
 * and RTLD_NEXT and RTLD_DEFAULT depend on it. A call instead would make this library the asker.
 *
 *   rdi handle   rsi name   rdx version (dlvsym)
 *   name does not begin with "cu"           -> jump to the next dlsym
 *   pseudo handle (0 default, -1 next)      -> as above, but a name that only this library has is asked of libc, which
 *                                              has none of it: NULL, and dlerror says so
 *   else                                    -> shim_dlsym / shim_dlvsym in dlsym.c
 *   dlvsym of a name that begins with "dl"  -> shim_own_lookup in dlsym.c, and as above when it answers NULL */

	.macro entry name, next, answer, own
	.globl \name
	.type \name, @function
	.p2align 4
\name:
	.cfi_startproc
	endbr64
	movq \next(%rip), %rax
	testq %rax, %rax
	jz 5f
1:	testq %rsi, %rsi
	jz 4f
	.if \own
	cmpb $'d', (%rsi)
	jne 6f
	cmpb $'l', 1(%rsi)
	jne 4f
	pushq %rdi
	.cfi_adjust_cfa_offset 8
	pushq %rsi
	.cfi_adjust_cfa_offset 8
	pushq %rdx
	.cfi_adjust_cfa_offset 8
	movq 24(%rsp), %rcx /* who asks */
	call shim_own_lookup
	popq %rdx
	.cfi_adjust_cfa_offset -8
	popq %rsi
	.cfi_adjust_cfa_offset -8
	popq %rdi
	.cfi_adjust_cfa_offset -8
	testq %rax, %rax
	jz 3f
	ret
6:
	.endif
	cmpb $'c', (%rsi)
	jne 4f
	cmpb $'u', 1(%rsi)
	jne 4f
	leaq 1(%rdi), %rcx
	cmpq $1, %rcx
	jbe 2f
	jmp \answer
2:	/* pseudo handle */
	pushq %rdi
	.cfi_adjust_cfa_offset 8
	pushq %rsi
	.cfi_adjust_cfa_offset 8
	pushq %rdx
	.cfi_adjust_cfa_offset 8
	movq %rsi, %rdi
	call shim_hidden_handle
	movq %rax, %rcx
	popq %rdx
	.cfi_adjust_cfa_offset -8
	popq %rsi
	.cfi_adjust_cfa_offset -8
	popq %rdi
	.cfi_adjust_cfa_offset -8
	testq %rcx, %rcx
	jz 3f
	movq %rcx, %rdi
3:	movq \next(%rip), %rax
4:	jmpq *%rax
5:	/* first call of the process */
	pushq %rdi
	.cfi_adjust_cfa_offset 8
	pushq %rsi
	.cfi_adjust_cfa_offset 8
	pushq %rdx
	.cfi_adjust_cfa_offset 8
	call shim_find_next
	popq %rdx
	.cfi_adjust_cfa_offset -8
	popq %rsi
	.cfi_adjust_cfa_offset -8
	popq %rdi
	.cfi_adjust_cfa_offset -8
	movq \next(%rip), %rax
	testq %rax, %rax
	jnz 1b
	ret
	.cfi_endproc
	.size \name, . - \name
	.endm

	.text
	.hidden shim_next_dlsym
	.hidden shim_next_dlvsym
	.hidden shim_hidden_handle
	.hidden shim_find_next
	.hidden shim_dlsym
	.hidden shim_dlvsym
	.hidden shim_own_lookup
	entry dlsym, shim_next_dlsym, shim_dlsym, 0
	entry dlvsym, shim_next_dlvsym, shim_dlvsym, 1

/* Says, as the compiler says it of the C files, that control-flow enforcement may stay on: the code above has endbr64 where it
 * is entered and returns to where it was called from. */
#ifdef __CET__
#include <cet.h>
#endif

	.section .note.GNU-stack, "", @progbits
