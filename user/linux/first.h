/* What a program does that is process 1 of Linux. Its initramfs has in /modules the modules of the
   kernel, by name in the order in which they are loaded, and in /arguments the program's arguments,
   one in each line. The file system of the disk is mounted at /disk. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

#define MOST_ARGUMENTS 16

static int is_first_of_linux(void) {
    return getpid() == 1 && !is_cops();
}

static void load_modules(void) {
    struct dirent **found;
    int count = scandir("/modules", &found, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        if (found[i]->d_name[0] == '.')
            continue;
        char path[300];
        snprintf(path, sizeof path, "/modules/%s", found[i]->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0);
        if (syscall(SYS_finit_module, fd, "", 0) != 0)
            printf("%s: %s\n", path, strerror(errno));
        CHECK(close(fd) == 0);
    }
}

static void read_arguments(int *count, char ***arguments) {
    static char text[1024];
    static char *words[MOST_ARGUMENTS + 1] = {"/init"};
    int fd = open("/arguments", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(read(fd, text, sizeof text - 1) >= 0 && close(fd) == 0);
    int words_count = 1;
    for (char *word = strtok(text, "\n"); word; word = strtok(NULL, "\n")) {
        CHECK(words_count < MOST_ARGUMENTS);
        words[words_count++] = word;
    }
    *count = words_count;
    *arguments = words;
}

/* Loads the modules, waits for the disk, and mounts it. */
static void begin_linux(int *count, char ***arguments) {
    load_modules();
    read_arguments(count, arguments);
    CHECK(mount("devtmpfs", "/dev", "devtmpfs", 0, NULL) == 0);
    struct stat status;
    for (int i = 0; i < 100 && stat("/dev/vda", &status) != 0; i++)
        usleep(100 * 1000);
    CHECK(mount("/dev/vda", "/disk", "ext4", 0, NULL) == 0);
    /* After its start, Linux is busy for a while. */
    sleep(3);
}

/* Makes the disk clean and powers the machine off. */
static void end_linux(void) {
    CHECK(umount("/disk") == 0);
    reboot(RB_POWER_OFF);
}
