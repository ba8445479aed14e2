/* Preloaded: writes each name that a process asks its environment for, a line each, to the file ASKED_NAMES. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
extern char **environ;

static char *find(const char *name) {
  size_t length = strlen(name);
  for (char **entry = environ; entry && *entry; entry++)
    if (!strncmp(*entry, name, length) && (*entry)[length] == '=') return *entry + length + 1;
  return 0;
}

char *getenv(const char *name) {
  char line[256], *file = strncmp(name, "TORCH_", 6) ? 0 : find("ASKED_NAMES");
  int fd = file ? open(file, O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;
  if (fd >= 0) {
    int length = snprintf(line, sizeof line, "%s\n", name);
    if (write(fd, line, length) != length) perror(file);
    close(fd);
  }
  return find(name);
}
