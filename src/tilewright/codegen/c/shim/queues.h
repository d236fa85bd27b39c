/* Engines on the host: queues of commands that run as late, or in as odd an order, as the waits of
   a program allow, so that a wait that is missing shows as wrong numbers.

   Nothing here knows a machine. Commands are functions and the records that they take. */
#ifndef TILEWRIGHT_QUEUES_H
#define TILEWRIGHT_QUEUES_H

#include <stddef.h>
#include <stdint.h>

#define QUEUES_ENGINES 8        /* engines of a machine, at most */
#define QUEUES_RECORD_BYTES 768 /* bytes of a command's record, at most */
#define QUEUES_DEPTH 256        /* commands and waits that a queue holds */
#define QUEUES_FLAGS 32         /* flags of an ordered pair of engines, at most */

/* Appends a command to an engine's queue. Returns its ticket: how many commands the engine has been
   given since the last finish, this one included. */
uint32_t queues_issue(int engine, void (*run)(const void *), const void *record, size_t bytes);

/* What is appended to the engine's queue hereafter starts once the other has completed the commands
   up to that ticket. Ticket 0 is no command. */
void queues_wait(int engine, int other, uint32_t ticket);

/* Flags of ordered pairs of engines. Set: appended to the engine's queue, and set when all before it
   there is done; to set one that holds as much as it can is a failure. Await: appended to the
   other's queue, which goes on once the flag is set, and takes it down. A flag holds so much as
   queues_flag_depth says; 1 at first. */
void queues_set_flag(int engine, int other, unsigned flag);
void queues_await_flag(int engine, int other, unsigned flag);
void queues_flag_depth(unsigned depth);

/* All that any engine was given before ends before anything that follows starts. */
void queues_barrier(void);

/* Runs all that is left; no flag may be set then, and tickets begin at 1 again. */
void queues_finish(void);

/* The order in which commands run, of those that the waits allow, for a machine of so many engines:
     0                  as they were issued
     1 .. engines       that engine as early as possible
     .. 2 * engines     that engine as late as possible
     beyond             at random, from this number as a seed */
void queues_order(int engines, unsigned order);

#endif
