/* shim/dlsym_aarch64.S
 * The same as dlsym_x86_64.S, which explains it. x0 handle, x1 name, x2 version; x30 must reach the next dlsym unchanged. */

	/* A frame, with the arguments kept over a call into C. */
	.macro save
	stp x29, x30, [sp, #-48]!
	.cfi_adjust_cfa_offset 48
	.cfi_rel_offset x29, 0
	.cfi_rel_offset x30, 8
	mov x29, sp
	stp x0, x1, [sp, #16]
	str x2, [sp, #32]
	.endm

	.macro restore
	ldr x2, [sp, #32]
	ldp x0, x1, [sp, #16]
	ldp x29, x30, [sp], #48
	.cfi_adjust_cfa_offset -48
	.cfi_restore x29
	.cfi_restore x30
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
	save
	mov x3, x30 /* who asks */
	bl shim_own_lookup
	mov x10, x0
	restore
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
	save
	mov x0, x1
	bl shim_hidden_handle
	mov x10, x0
	restore
	cbz x10, 3f
	mov x0, x10
3:	adrp x9, \next
	ldr x16, [x9, :lo12:\next]
4:	br x16
5:	/* first call of the process */
	save
	bl shim_find_next
	restore
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

	.section .note.GNU-stack, "", %progbits
