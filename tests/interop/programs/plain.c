/* A plain BCCN1 program: does in C what plain.py does. usage: plain BROADCAST PORT */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int sock = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    struct sockaddr_in here = { .sin_family = AF_INET }, all = here;
    if (argc != 3)
        return 2;
    here.sin_port = all.sin_port = htons(atoi(argv[2]));
    inet_pton(AF_INET, argv[1], &all.sin_addr);
    setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(sock, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    if (bind(sock, (struct sockaddr *)&here, sizeof here)) {
        perror("bind");
        return 1;
    }
    setlinebuf(stdout);
    puts("ready");
    struct pollfd fds[2] = { { sock, POLLIN, 0 }, { 0, POLLIN, 0 } };
    for (unsigned long seq = 1; poll(fds, 2, -1) > 0;) {
        char in[2049], body[1300], out[1400];
        if (fds[0].revents) {
            ssize_t n = recv(sock, in, sizeof in - 1, 0);
            printf("%.*s\n", (int)n, in);
        }
        if (fds[1].revents) {
            ssize_t n = read(0, in, 1000);
            if (n <= 0)
                return 0;
            in[n - 1] = 0; /* cuts off the LF */
            char *blank = strchr(in, ' ');
            if (blank)
                *blank = '|';
            int len = snprintf(body, sizeof body, "?:%lu:%s", seq++, in);
            len = snprintf(out, sizeof out, "BCCN1[%d]%s", len, body);
            sendto(sock, out, len, 0, (struct sockaddr *)&all, sizeof all);
        }
    }
}
