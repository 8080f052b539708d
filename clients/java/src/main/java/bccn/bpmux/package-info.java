/**
 * One side of a connection of bpmux/rel (clients/BPMUX.md): bytes in, events out. It has no socket, clock or thread,
 * and is not exported: programs use the package {@code bccn}.
 */
package bccn.bpmux;
