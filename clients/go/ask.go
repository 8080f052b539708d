package bccn

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// A query is a control request without an answer yet.
type query struct {
	key       string             // of the answer
	published uint64             // messages sent before the request
	granted   func(value string) // called with the answer, unless that is an error or nobody waits for it
	settled   func()             // called with any answer
	before    []byte             // a packet that goes before the request
	said      bool               // it has left, or what goes before it
	complaint error              // about the SUB sent with the request
	value     string
	err       error
	done      chan struct{}

	subscription *Subscription // of a SUB before it
	undo         *withdrawal   // takes back what has left, where nobody waits for it any more
}

func newQuery(key string, granted func(string)) *query {
	if key == "ping" {
		key = "pong"
	}
	return &query{key: key, granted: granted, done: make(chan struct{})}
}

func (q *query) finish(value string, err error) {
	if q.value, q.err = value, err; err == nil {
		q.err = q.complaint
	}
	if q.err == nil && q.granted != nil {
		q.granted(value)
	}
	if q.settled != nil {
		q.settled()
	}
	close(q.done)
}

// await waits for a link other than gone.
func (c *Client) await(ctx context.Context, gone *link) (*link, error) {
	defer c.press()()
	for {
		c.mu.Lock()
		l, changed, unreachable := c.link, c.changed, c.unreachable
		c.mu.Unlock()
		if l != nil && l != gone {
			return l, nil
		}
		select {
		case <-changed:
		case <-c.closed:
			return nil, errClosed
		case <-c.ended:
			return nil, errEnded
		case <-ctx.Done():
			return nil, overdue(ctx, ErrUnavailable, unreachable.Error())
		}
	}
}

// ask sends a control request and waits for its answer. If the connection breaks, ask repeats the request on the next.
//
// Both functions run under mu. granted gets the answer, and remembers it for later connections. prepare, which may be
// nil, says what goes before the request on each connection.
func (c *Client) ask(
	ctx context.Context, key, value string, granted func(string), prepare func(*query),
) (string, error) {
	packet, err := buildControl(key, value)
	if ctx == nil {
		err = errNoContext
	}
	if err != nil {
		return "", err
	}
	ctx, cancel := c.patience(ctx)
	defer cancel()
	defer c.press()()
	for l := (*link)(nil); ; {
		if l, err = c.await(ctx, l); err == nil && ctx.Err() != nil {
			err = overdue(ctx, ErrTimeout, "no time to ask the daemon")
		}
		if err != nil {
			c.takeBackSoon(l)
			return "", err
		}
		query := newQuery(key, granted)
		if err = c.submit(ctx, l, query, packet, prepare); err == errGone {
			continue
		}
		if err == nil {
			select {
			case <-query.done:
			case <-c.closed:
				return "", errClosed
			case <-ctx.Done():
				err = overdue(ctx, ErrTimeout, "the daemon does not answer")
			}
		}
		if err != nil && !c.giveUp(l, query) {
			c.takeBackSoon(l)
			return "", err
		}
		if query.err != errGone {
			return query.value, query.err
		}
	}
}

// submit sends what goes before the query, and then the query. After Timeout the query was not sent.
func (c *Client) submit(ctx context.Context, l *link, asked *query, packet []byte, prepare func(*query)) error {
	if err := c.sending.enter(ctx); err != nil {
		return err
	}
	defer c.sending.leave()
	err := c.checkBacklog()
	if err == nil {
		err = c.takeBack(ctx, l)
	}
	if err == nil {
		err = c.enqueue(l, asked, prepare)
	}
	if err == nil && asked.before != nil {
		err = c.send(ctx, l, asked.before)
		asked.said = err == nil
	}
	if err == nil {
		err = c.send(ctx, l, packet)
		asked.said = asked.said || err == nil
	}
	if err != nil {
		c.dequeue(asked)
	}
	return err
}

// enqueue appends a query to those without an answer.
func (c *Client) enqueue(l *link, asked *query, prepare func(*query)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link != l {
		return errGone
	}
	if prepare != nil {
		prepare(asked)
	}
	if asked.published = c.published; asked.subscription != nil {
		c.routes = nil
	}
	c.asked = append(c.asked, asked)
	return nil
}

func (c *Client) checkBacklog() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting > backlogLimit {
		return &Error{Code: ErrBacklog, Text: fmt.Sprintf("%d bytes of messages wait: receive them", c.waiting)}
	}
	return nil
}

// dequeue removes a query that was not sent.
func (c *Client) dequeue(asked *query) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = slices.DeleteFunc(c.asked, func(other *query) bool { return other == asked })
}

// patience gives ctx the deadline of Options.Timeout, if it has none.
func (c *Client) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.options.Timeout)
}

// overdue: ctx ended; if its caller did not want that any more, it is the caller's own error.
func overdue(ctx context.Context, code Code, text string) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return &Error{Code: code, Text: text, cause: ctx.Err()}
}
