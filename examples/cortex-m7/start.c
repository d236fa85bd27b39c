/* Starts a Cortex-M7 that Arm's MPS2 board (AN500) and QEMU have: `qemu-system-arm -M mps2-an500`.
 *
 * Your board's own start-up code and linker script take the place of this file and of board.ld.
 */
#include <stdint.h>

extern uint32_t stack_top[], data_load[], data_start[], data_end[], bss_start[], bss_end[];
int main(void);

/* Semihosting: asks the debugger, or the emulator, for something. */
static int ask(int what, const void *with)
{
    register int r0 __asm__("r0") = what;
    register const void *r1 __asm__("r1") = with;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

/* Writes text to the emulator's standard output. */
void say(const char *text) { ask(0x04, text); }

void stop(int status)
{
    const uint32_t reason[2] = {0x20026, (uint32_t)status}; /* ADP_Stopped_ApplicationExit */
    ask(0x20, reason);
    for (;;)
        ;
}

void start(void)
{
    volatile uint32_t *const coprocessors = (volatile uint32_t *)0xe000ed88;
    *coprocessors |= 0xf << 20; /* the floating-point unit */
    __asm__ volatile("dsb\n\tisb");
    for (uint32_t *to = data_start, *from = data_load; to < data_end;)
        *to++ = *from++;
    for (uint32_t *to = bss_start; to < bss_end;)
        *to++ = 0;
    stop(main());
}

static void fault(void) { stop(99); }

__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    stack_top, start, fault, fault, fault, fault, fault,
};
