package bccn

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// Publish hands one message to the daemon. It waits only while the daemon is away or takes no more, until ctx ends, or
// for Options.Timeout if ctx has no deadline; after an error the message was not sent. If the daemon then rejects the
// message, a notice says so, and the next Barrier fails.
func (c *Client) Publish(ctx context.Context, channel string, payload []byte) error {
	return c.publish(ctx, channel, "", payload)
}

// PublishAll publishes to every listening program of the segment.
func (c *Client) PublishAll(ctx context.Context, payload []byte) error {
	return c.publish(ctx, "!", "", payload)
}

// PublishTo publishes to the program whose src is target, or to all programs below it.
func (c *Client) PublishTo(ctx context.Context, target string, payload []byte) error {
	return c.publish(ctx, "!"+target, "", payload)
}

// SendDatagram passes on a whole BCCN1 datagram from elsewhere, unchanged. It needs the right to bridge. It waits and
// fails as Publish does; what the daemon has against the datagram is the error of the next Barrier.
func (c *Client) SendDatagram(ctx context.Context, datagram []byte) error {
	if !bytes.HasPrefix(datagram, []byte(datagramPrefix)) {
		return &Error{Code: ErrInvalid, Text: fmt.Sprintf("%.32q: not a BCCN1 datagram", datagram)}
	}
	return c.transmit(ctx, datagram, 1)
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

func (c *Client) publish(ctx context.Context, channel, head string, payload []byte) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	packet, err := appendMsg((*buffer)[:0], channel, head, payload)
	if err != nil {
		return err
	}
	*buffer = packet
	return c.transmit(ctx, packet, 1)
}

// A Batch gathers messages into as few packets as possible, if packing was agreed (Options.Pack); otherwise they go one
// by one. One goroutine uses it.
type Batch struct {
	client   *Client
	packet   []byte
	messages uint64
}

// Batch returns an empty batch. What is published with it has been handed to the daemon after Flush.
func (c *Client) Batch() *Batch { return &Batch{client: c} }

// Publish adds a message, and sends the packet when it is full. Its errors are those of Client.Publish, about any
// message of the batch.
func (b *Batch) Publish(ctx context.Context, channel string, payload []byte) error {
	size, limit := len("MSG \x00")+len(channel)+len(payload), int(b.client.packing.Load())
	if b.messages > 0 && len(b.packet)+lengthSize+size > limit {
		if err := b.Flush(ctx); err != nil {
			return err
		}
	}
	if len(packPrefix)+lengthSize+size > limit {
		return b.client.Publish(ctx, channel, payload)
	}
	if b.messages == 0 {
		b.packet = append(b.packet[:0], packPrefix...)
	}
	packet, err := appendMsg(binary.BigEndian.AppendUint32(b.packet, uint32(size)), channel, "", payload)
	if err == nil {
		b.packet = packet
		b.messages++
	}
	return err
}

// Flush hands the rest of the batch to the daemon, and empties it.
func (b *Batch) Flush(ctx context.Context) error {
	messages := b.messages
	b.messages = 0
	switch {
	case messages > 1 && len(b.packet) <= int(b.client.packing.Load()):
		return b.client.transmit(ctx, b.packet, messages)
	case messages > 0:
		return unpack(b.packet, func(packet []byte) error { return b.client.transmit(ctx, packet, 1) })
	}
	return nil
}

// --- sending ---

// A gate is a lock of which a context can end the wait.
type gate chan struct{}

func (g gate) try() bool {
	select {
	case g <- struct{}{}:
		return true
	default:
		return false
	}
}

func (g gate) enter(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return overdue(ctx, ErrTimeout, "not sent: the daemon takes no more messages")
	}
}

func (g gate) leave() { <-g }

// transmit sends a packet of so many messages, over reconnections and a full socket.
func (c *Client) transmit(ctx context.Context, packet []byte, messages uint64) error {
	if ctx == nil {
		return errNoContext
	}
	if ctx.Err() != nil {
		return overdue(ctx, ErrTimeout, "not sent: there was no time for it")
	}
	c.mu.Lock()
	l := c.link
	c.mu.Unlock()
	if l != nil && c.sending.try() {
		sent := l.try(packet)
		if sent {
			c.count(messages)
		}
		c.sending.leave()
		if sent {
			return nil
		}
	}
	return c.transmitPatiently(ctx, l, packet, messages)
}

func (c *Client) transmitPatiently(ctx context.Context, l *link, packet []byte, messages uint64) error {
	ctx, cancel := c.patience(ctx)
	defer cancel()
	for {
		err := error(errGone)
		if l != nil {
			if err = c.sending.enter(ctx); err == nil {
				if err = c.send(ctx, l, packet); err == nil {
					c.count(messages)
				}
				c.sending.leave()
			}
		}
		if err != errGone {
			return err
		}
		if l, err = c.await(ctx, l); err != nil {
			return err
		}
	}
}

// count adds to what was published; under sending.
func (c *Client) count(messages uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.published += messages
}

// try sends a packet if there is room for it at once; under sending.
func (l *link) try(packet []byte) bool {
	l.packet, l.patient = packet, false
	return l.raw.Write(l.write) == nil && l.err == nil
}

// send sends a packet on this link before ctx ends; under sending. The error is errGone if the link broke first.
func (c *Client) send(ctx context.Context, l *link, packet []byte) error {
	for l.packet, l.patient = packet, false; ; {
		err := l.raw.Write(l.write)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return overdue(ctx, ErrTimeout, "not sent: the daemon takes no more messages")
		case err != nil:
			return errGone
		case l.err == nil:
			return nil
		case l.err == syscall.EAGAIN: // wait, and keep reading: the daemon may be waiting for us to read
			if ctx.Err() != nil {
				return overdue(ctx, ErrTimeout, "not sent: the daemon takes no more messages")
			}
			defer c.press()()
			defer l.writeUntil(ctx)()
			l.patient = true
		case l.err == syscall.EMSGSIZE:
			return &Error{Code: ErrTooLarge, Text: fmt.Sprintf("packet: %d bytes, too many to send", len(packet))}
		case l.err == syscall.ENOBUFS || l.err == syscall.ENOMEM:
			if time.Sleep(memoryPause); ctx.Err() != nil {
				return overdue(ctx, ErrTimeout, "not sent: the kernel has no memory for it")
			}
		case l.err != syscall.EINTR:
			return errGone
		}
	}
}

// writeUntil makes writes wait until ctx ends and no longer, up to the call of release.
func (l *link) writeUntil(ctx context.Context) (release func()) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = l.conn.SetWriteDeadline(past)
		close(over)
	})
	return func() {
		if !stop() {
			<-over
		}
		_ = l.conn.SetWriteDeadline(time.Time{})
	}
}
