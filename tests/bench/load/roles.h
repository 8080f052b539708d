/* What a load program can be told to do (main.c); its words are named in its file. */
#ifndef ROLES_H
#define ROLES_H

void packets_publish(void);
void packets_subscribe(void);
void stream_publish(void);
void stream_subscribe(void);
void ping(void);
void echo(void);
void churn(void);
void datagrams_send(void);
void datagrams_receive(void);
void door_subscribe(void);
void door_publish(void);
void door_late(void);
void fyrehose_publish(void);
void fyrehose_subscribe(void);

#endif
