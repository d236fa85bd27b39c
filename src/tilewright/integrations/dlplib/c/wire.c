#include "wire.h"

#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef DLPLIB_PYTHON
#define DLPLIB_PYTHON "python3"
#endif

enum { MOST_HANDLES = 64, LONGEST_LINE = 4096, SERVER = 3 };

extern char **environ;

struct device {
    int used; /* 0 never, 1 open, 2 closed */
    int socket;
    pid_t process;
    char message[LONGEST_LINE];
};

static struct device devices[MOST_HANDLES];
static char no_handle[256] = "[dlp-handle] there is no such handle";

static struct device *device_of(int id)
{
    if (id < 1 || id > MOST_HANDLES || devices[id - 1].used != 1)
        return NULL;
    return &devices[id - 1];
}

static int start(struct device *device)
{
    int ends[2];
    char number[] = "3";
    char module[] = "tilewright.integrations.dlplib.server", option[] = "-m";
    const char *python = getenv("DLPLIB_PYTHON");
    char *arguments[5];
    posix_spawn_file_actions_t actions;
    int failed;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return errno;
    if (python == NULL || python[0] == '\0')
        python = DLPLIB_PYTHON;
    arguments[0] = (char *)(uintptr_t)python;
    arguments[1] = option;
    arguments[2] = module;
    arguments[3] = number;
    arguments[4] = NULL;
    failed = posix_spawn_file_actions_init(&actions);
    if (failed == 0) {
        /* The child's end loses close-on-exec by being copied, also onto itself. */
        failed = posix_spawn_file_actions_adddup2(&actions, ends[1], SERVER);
        if (failed == 0)
            failed = posix_spawnp(&device->process, python, &actions, NULL, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    close(ends[1]);
    if (failed != 0) {
        close(ends[0]);
        return failed;
    }
    device->socket = ends[0];
    return 0;
}

dlpStatus dlpWireOpen(int *id)
{
    int i, failed;

    *id = 0;
    for (i = 0; i < MOST_HANDLES && devices[i].used; i++)
        ;
    if (i == MOST_HANDLES)
        return DLP_ERROR_HANDLE;
    failed = start(&devices[i]);
    if (failed != 0) {
        snprintf(no_handle, sizeof no_handle, "[dlp-lost] the device's process was not started: %s", strerror(failed));
        return DLP_ERROR_LOST;
    }
    devices[i].used = 1;
    devices[i].message[0] = '\0';
    *id = i + 1;
    return DLP_SUCCESS;
}

void dlpWireClose(int id)
{
    struct device *device = device_of(id);

    if (device == NULL)
        return;
    close(device->socket);
    while (waitpid(device->process, NULL, 0) < 0 && errno == EINTR)
        ;
    device->used = 2;
}

static int put(int socket, const void *data, size_t size)
{
    const char *next = data;

    while (size > 0) {
        ssize_t sent = send(socket, next, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return -1;
        next += sent;
        size -= (size_t)sent;
    }
    return 0;
}

static int take(int socket, void *data, size_t size)
{
    char *next = data;

    while (size > 0) {
        ssize_t got = recv(socket, next, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return -1;
        next += got;
        size -= (size_t)got;
    }
    return 0;
}

static int take_line(int socket, char *line)
{
    size_t length = 0;

    for (;;) {
        if (take(socket, line + length, 1) != 0)
            return -1;
        if (line[length] == '\n') {
            line[length] = '\0';
            return 0;
        }
        if (++length == LONGEST_LINE)
            return -1;
    }
}

static dlpStatus lost(struct device *device)
{
    snprintf(device->message, sizeof device->message, "[dlp-lost] the device's process has ended");
    return DLP_ERROR_LOST;
}

dlpStatus dlpWireAsk(int id, const void *data, size_t size, void *reply, size_t expected,
                     int64_t *numbers, int count, const char *format, ...)
{
    struct device *device = device_of(id);
    char line[LONGEST_LINE];
    unsigned long status, follow;
    char *text;
    int length, i;
    va_list arguments;

    if (device == NULL)
        return DLP_ERROR_HANDLE;
    va_start(arguments, format);
    length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof line) {
        snprintf(device->message, sizeof device->message, "[dlp-parameter] too many arguments");
        return DLP_ERROR_PARAMETER;
    }
    if (put(device->socket, line, (size_t)length) != 0 || put(device->socket, data, size) != 0 ||
        take_line(device->socket, line) != 0)
        return lost(device);
    status = strtoul(line, &text, 10);
    follow = strtoul(text, &text, 10);
    if (status > DLP_ERROR_REFUSED || follow != (status == DLP_SUCCESS ? expected : 0))
        return lost(device);
    if (status != DLP_SUCCESS) {
        snprintf(device->message, sizeof device->message, "%s", text + (*text == ' '));
        return (dlpStatus)status;
    }
    for (i = 0; i < count; i++)
        numbers[i] = strtoll(text, &text, 10);
    if (take(device->socket, reply, expected) != 0)
        return lost(device);
    device->message[0] = '\0';
    return DLP_SUCCESS;
}

const char *dlpWireMessage(int id)
{
    struct device *device = device_of(id);

    return device == NULL ? no_handle : device->message;
}
