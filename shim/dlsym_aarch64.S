/* shim/dlsym_aarch64.S
 * The same as dlsym_x86_64.S, which explains it. x0 handle, x1 name, x2 version; x30 must reach the next dlsym unchanged. */

	/* Calls \function with \argument; the three arguments and the return address are kept, the answer is in x10.
	 * The hints sign the return address on cores that can, elsewhere they do nothing. */
	.macro call_aside function, argument=x0
	hint #25 /* paciasp */
	.cfi_negate_ra_state
	stp x29, x30, [sp, #-48]!
	.cfi_adjust_cfa_offset 48
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	mov x29, sp
	stp x0, x1, [sp, #16]
	str x2, [sp, #32]
	mov x0, \argument
	bl \function
	mov x10, x0
	ldr x2, [sp, #32]
	ldp x0, x1, [sp, #16]
	ldp x29, x30, [sp], #48
	.cfi_adjust_cfa_offset -48
	.cfi_restore x29
	.cfi_restore x30
	hint #29 /* autiasp */
	.cfi_negate_ra_state
	.endm

	.macro entry name, next, answer, own
	.globl \name
	.type \name, %function
	.p2align 4
\name:
	.cfi_startproc
	hint #34 /* bti c */
	adrp x9, \next
	ldr x16, [x9, :lo12:\next]
	cbz x16, 5f
1:	cbz x1, 4f
	ldrb w10, [x1]
	.if \own
	cmp w10, #'d'
	b.ne 6f
	ldrb w10, [x1, #1]
	cmp w10, #'l'
	b.ne 4f
	mov x3, x30 /* who asks, before the address is signed */
	call_aside shim_own_lookup
	cbz x10, 3f
	mov x0, x10
	ret
6:
	.endif
	cmp w10, #'c'
	b.ne 4f
	ldrb w10, [x1, #1]
	cmp w10, #'u'
	b.ne 4f
	add x10, x0, #1
	cmp x10, #1
	b.ls 2f
	b \answer
2:	/* pseudo handle */
	call_aside shim_hidden_handle, x1
	cbz x10, 3f
	mov x0, x10
3:	adrp x9, \next
	ldr x16, [x9, :lo12:\next]
4:	br x16
5:	/* first call of the process */
	call_aside shim_find_next
	adrp x9, \next
	ldr x16, [x9, :lo12:\next]
	cbnz x16, 1b
	mov x0, xzr
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

/* Says what the code above keeps to, as the compiler says it of the C files: the linker drops the marks of a library of which
 * one object has none. Bit 0 is BTI, bit 1 PAC. Source: ELF for the Arm 64-bit Architecture, "Program Property". */
#if defined(__ARM_FEATURE_BTI_DEFAULT) && defined(__ARM_FEATURE_PAC_DEFAULT)
#define MARKS 3
#elif defined(__ARM_FEATURE_BTI_DEFAULT)
#define MARKS 1
#elif defined(__ARM_FEATURE_PAC_DEFAULT)
#define MARKS 2
#endif
#ifdef MARKS
	.section .note.gnu.property, "a", %note
	.p2align 3
	.word 4, 16, 5 /* bytes of the name, bytes of the rest, NT_GNU_PROPERTY_TYPE_0 */
	.asciz "GNU"
	.word 0xc0000000, 4, MARKS, 0 /* GNU_PROPERTY_AARCH64_FEATURE_1_AND, its bytes, padding */
#endif

	.section .note.GNU-stack, "", %progbits
