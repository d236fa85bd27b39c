"""Threads of a team meet every time, and sleep where they would wait for long."""

import subprocess
from pathlib import Path

import pytest

import tilewright
from tilewright.codegen.c.compiler import FLAGS, find_compiler

HEADERS = Path(tilewright.__file__).parent / "targets" / "cpu"

PROGRAM = """
#include "team.h"
#include <stdio.h>
#include <sys/resource.h>

#define MEETINGS 400

/* Each thread counts a round, and after meeting sees that all have. */
static long counts[TEAM_MOST], wrong[TEAM_MOST];

static void rest(long microseconds)
{
    struct timespec t = {0, microseconds * 1000};
    nanosleep(&t, NULL);
}

static void rounds(void *job, struct team *team, long part, long parts)
{
    for (long i = 0; i < MEETINGS; i++) {
        counts[part]++;
        if (job && (i * 7 + part) % 97 == 0)
            rest(*(long *)job);
        if (team)
            team_meet(team);
        for (long other = 0; other < parts; other++)
            wrong[part] += counts[other] != counts[part];
        if (team)
            team_meet(team);
    }
}

/* One thread is late at every meeting. */
static void late(void *job, struct team *team, long part, long parts)
{
    (void)parts;
    for (long i = 0; i < 10; i++) {
        if (!part)
            rest(*(long *)job);
        team_meet(team);
    }
}

static double burnt(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

int main(void)
{
    long failures = 0, pause = 300, while_late = 20000;
    for (int threads = 1; threads <= 9; threads += 2) {
        struct team *team = team_start(threads);
        if (!team)
            return 1;
        for (int run = 0; run < 4; run++) {
            team_run(team, rounds, run % 2 ? &pause : NULL);
            if (run == 2)
                rest(1000);
        }
        team_stop(team);
        for (long part = 0; part < threads; part++) {
            failures += wrong[part] + (counts[part] != 4 * MEETINGS);
            counts[part] = wrong[part] = 0;
        }
    }
    struct team *team = team_start(4);
    double start = burnt();
    team_run(team, late, &while_late);
    const double meeting = burnt() - start;
    start = burnt();
    rest(200000);
    const double idle = burnt() - start;
    team_stop(team);
    printf("%ld %f %f\\n", failures, meeting, idle);
    return 0;
}
"""


def program(folder: Path, *flags: str) -> list[float]:
    """What the program prints: failures, and processor time of waiting for 0.2 s, twice."""
    (folder / "team.c").write_text(PROGRAM)
    command = [*find_compiler(), *FLAGS, "-Werror", *flags, f"-I{HEADERS}", "team.c", "-o", "team"]
    subprocess.run(command, cwd=folder, check=True)
    ran = subprocess.run([folder / "team"], capture_output=True, text=True, check=True, timeout=100)
    return [float(word) for word in ran.stdout.split()]


def test_threads_meet_and_sleep_while_they_wait(tmp_path: Path) -> None:
    failures, meeting, idle = program(tmp_path)
    assert failures == 0
    # Three threads that looked all the time would take 0.6 s where they have cores.
    assert meeting < 0.05
    assert idle < 0.02


@pytest.mark.slow
def test_no_meeting_is_a_race(tmp_path: Path) -> None:
    failures, _, _ = program(tmp_path, "-fsanitize=thread", "-g")
    assert failures == 0
