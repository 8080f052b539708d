package Bccn;

use 5.026;
use strict;
use warnings;

use parent 'Bccn::Connection';

use Socket qw(MSG_NOSIGNAL);

use Bccn::Error;
use Bccn::Protocol qw(pattern_regex question_at);
use Bccn::Readiness;

our $VERSION = '0.1.0';

# Channels whose callbacks are remembered.
use constant ROUTES_LIMIT => 1024;

# Nobody listens on other hosts if so many questions bring no answer, since datagrams get lost. The first question
# waits, so that an answer at once costs the segment nothing. Times are seconds.
use constant {
    QUESTIONS => 3,
    ASK_AFTER => 0.02,
    ASK_EVERY => 0.1,
};

my %DEFAULTS = (
    address   => undef,
    name      => undef,
    format    => 'plain',
    pack      => 0,
    echo      => 1,
    separator => '/',
    queue     => undef,
    tap       => 0,
    reconnect => 1,
    timeout   => 5,
    wait      => 0,
    on_notice => sub { warn "bccn: $_[0]{text}\n" }, ## no critic (RequireCarping)
);

# --- a bus ---

sub new {
    my ($class, %given) = @_;
    my %options = (%DEFAULTS, %given);
    my ($unknown) = grep { !exists $DEFAULTS{$_} } sort keys %given;
    Bccn::Error->throw('invalid', "no option '$unknown'") if defined $unknown;
    Bccn::Error->throw('invalid', "format '$options{format}': plain or full") if $options{format} !~ /\A(?:plain|full)\z/;
    Bccn::Error->throw('invalid', "separator '$options{separator}': / or .")  if $options{separator} !~ m{\A[/.]\z};
    my $queue  = $options{queue};
    my %wanted = (
        name      => $options{name},
        separator => $options{separator} eq '/'  ? undef  : '.',
        format    => $options{format} eq 'plain' ? undef  : 'full',
        pack      => $options{pack}              ? 'on'   : undef,
        tap       => $options{tap}               ? 'on'   : undef,
        queue     => $queue ? join(' ', map {"$_=$queue->{$_}"} sort keys %{$queue}) : undef,
    );
    my $self = bless {
        (map { $_ => $options{$_} } qw(address echo separator reconnect timeout on_notice)),
        wanted        => \%wanted,
        subscriptions => [], # pattern, regex, callback
        routes        => {},
        listening     => 0,  # the program wants `!` for itself
        hearing       => 0,  # it wants `!` for answers to requests
        listener      => undef,
        calling       => 0,  # there are callbacks
        requests      => 0,
        buffer        => '',
        pack_limit    => 0,
        closed        => 0,
    }, $class;
    $self->_start;
    $self->_ensure(Bccn::Connection::deadline_in($options{wait}));
    return $self;
}

sub close {
    my $self = shift;
    delete $self->{readiness}; # first: _let_go must not remove the socket from the epoll of a parent
    $self->_let_go;
    @{$self}{qw(closed pid)} = (1, 0);
    return;
}

# A thread gets no copy of the bus of another.
sub CLONE_SKIP { return 1 }

sub get_name {
    my $self = shift;
    $self->_enter;
    $self->_ensure;
    $self->_settle;
    return $self->{name};
}

sub set_name {
    my ($self, $name) = @_;
    $self->control('name', $name);
    $self->{wanted}{name} = $name;
    return;
}

sub heartbeat_start {
    my ($self, $seconds, $text) = @_;
    my $value = !$seconds ? undef : ($text // '') eq '' ? $seconds : "$seconds $text";
    $self->control('heartbeat', $value // 'off');
    $self->{wanted}{heartbeat} = $value;
    return;
}

sub control {
    my ($self, $key, $value) = @_;
    $self->_enter;
    $self->_fail('invalid', "control key '$key': must not be empty nor contain white space") if $key !~ /\A[^\s\0]+\z/;
    my $answer = $self->_request($key, $value);
    $self->_settle;
    return $answer;
}

sub lost { return $_[0]{lost_ever} }

# --- publishing ---

sub send {
    my ($self, $channel, $payload) = @_;
    $self->_enter if $self->{pid} != $$;
    my $packet = "MSG $channel\0" . ($payload // '');
    utf8::downgrade($packet, 1) or $self->_fail('invalid', 'not bytes: encode the characters first');
    $self->_fail('invalid', 'channel: must not contain NUL') if index($channel, "\0") >= 0;
    return $self->_gather($packet) if $self->{batch};
    if ($self->{socket} && defined CORE::send $self->{socket}, $packet, MSG_NOSIGNAL) {
        $self->{published}++;
    }
    else {
        $self->_transmit($packet, 1);
    }
    return $self->_glance;
}

{
    no warnings 'once';
    *publish    = \&send;
    *send_topic = \&send; # the other name that BCCN1 programs use
    *whoami     = \&get_name;
}

sub send_all {
    my ($self, $payload) = @_;
    return $self->send('!', $payload);
}

sub send_to {
    my ($self, $target, $payload) = @_;
    return $self->send("!$target", $payload);
}

sub batch {
    my ($self, $code) = @_;
    $self->_enter;
    return $code->() if $self->{batch};
    $self->_ensure; # a connection has agreed on the size of a PACK
    $self->{batch} = [];
    my $said  = eval { $code->(); 1 };
    my $error = $@;
    my $sent  = eval { $self->_flush; 1 };
    $error = $@ if $said;
    undef $self->{batch};
    die $error if !$said || !$sent; ## no critic (RequireCarping)
    return $self->_glance;
}

sub _gather {
    my ($self, $packet) = @_;
    my $limit = $self->{pack_limit} || Bccn::Connection::GATHERED_LIMIT;
    my $size  = 4 + length $packet;
    $self->_flush if $self->{batch_size} + $size + 5 > $limit;
    push @{ $self->{batch} }, $packet;
    $self->{batch_size} += $size;
    return;
}

sub barrier {
    my $self = shift;
    $self->_enter;
    $self->_ask(undef);
    my ($first, $count, $doubt) = @{$self}{qw(rejection rejections in_doubt)};
    @{$self}{qw(rejection rejections in_doubt)} = (undef, 0, 0);
    $self->_fail($first->[0], $first->[1] . ($count > 1 ? '; ' . ($count - 1) . ' more rejected' : '')) if $first;
    $self->_fail('unconfirmed', "the daemon went away: up to $doubt messages may not have been published") if $doubt;
    return $self->_settle;
}

# --- subscribing and receiving ---

sub listen {
    my ($self, $pattern, $callback) = @_;
    $self->_enter;
    $self->_ensure;
    if ($pattern eq '!') { # the protocol has a request for this, and not a pattern
        $self->_request('listen');
        @{$self}{qw(listening listener)} = (1, $callback);
    }
    else {
        $self->_fail('invalid', "pattern '$pattern': must be ASCII without white space") if $pattern =~ /[^!-~]/;
        my $subscription = {
            pattern  => $pattern,
            regex    => pattern_regex($pattern, $self->{separator}),
            callback => $callback,
        };
        my $subscriptions = $self->{subscriptions};
        my $last          = $self->{backlog}[-1];
        my $request       = {};
        if (!eval { $self->_ask("SUB $pattern", 0, $request); push @{$subscriptions}, $subscription; 1 }) {
            my $error = $@;
            @{$subscriptions} = grep { $_ != $subscription } @{$subscriptions};
            $self->_withdraw($pattern, $last) if $request->{left} && $self->_is_open($request);
            die $error; ## no critic (RequireCarping)
        }
    }
    return $self->_reroute;
}

sub subscribe {
    my ($self, $pattern) = @_;
    return $self->listen($pattern);
}

sub unsubscribe {
    my ($self, $pattern) = @_;
    $self->_enter;
    my $subscriptions = $self->{subscriptions};
    my ($last) = grep { $subscriptions->[$_]{pattern} eq $pattern } reverse 0 .. $#{$subscriptions};
    $self->_fail('invalid', "pattern $pattern: not subscribed") if !defined $last;
    splice @{$subscriptions}, $last, 1;
    $self->_reroute;
    my $request = { socket => $self->{socket} }; # a new connection has no such subscription
    if (!eval { $self->_ask("UNSUB $pattern", 1, $request); 1 }) {
        my $error = $@;
        $self->_withdraw($pattern, $self->{backlog}[-1]) if !$request->{left} && $self->_is_open($request);
        die $error; ## no critic (RequireCarping)
    }
    return $self->_settle;
}

sub recv {
    my ($self, $timeout) = @_;
    my $deadline;
    $self->_enter if $self->{pid} != $$;
    while (1) {
        while (my $message = $self->_next_message) {
            next if $self->{calling} && !$self->_deliver($message);
            $self->_settle if $self->{unsettled};
            return $message;
        }
        $self->_settle;
        $deadline //= Bccn::Connection::deadline_in($timeout);
        $self->_await_input($deadline) or return if !@{ $self->{backlog} };
    }
}

sub dispatch {
    my $self = shift;
    my @unclaimed;
    $self->_enter;
    for (1 .. Bccn::Connection::READ_LIMIT) {
        my $message = $self->_next_message;
        if (!$message) {
            $self->_await_input(Bccn::Connection::now()) or last;
        }
        elsif (!$self->{calling} || $self->_deliver($message)) {
            push @unclaimed, $message;
        }
    }
    $self->_settle;
    return @unclaimed;
}

sub fileno {
    my $self = shift;
    $self->_enter;
    if (!$self->{readiness}) {
        $self->{unsettled} = $self->{readiness} = Bccn::Readiness->new;
        $self->{readiness}->watch(CORE::fileno $self->{socket}) if $self->{socket};
    }
    $self->_settle;
    return $self->{readiness}->fd;
}

# --- callbacks ---

# Calls the callbacks of a message. True: recv returns it, too.
sub _deliver {
    my ($self, $message) = @_;
    my $route = $self->{routes}{ $message->{channel} } // $self->_route($message->{channel});
    my ($wanted, @callbacks) = @{$route};
    $_->($message, $self) for @callbacks;
    return $wanted;
}

sub _route {
    my ($self, $channel) = @_;
    my @matching = $channel =~ /\A!/ ? $self->{listener}
        : map { $_->{callback} } grep { $channel =~ $_->{regex} } @{ $self->{subscriptions} };
    my @callbacks = grep {defined} @matching;
    $self->{routes} = {} if keys %{ $self->{routes} } >= ROUTES_LIMIT;
    return $self->{routes}{$channel} = [ @callbacks < @matching || !@callbacks, @callbacks ];
}

sub _reroute {
    my $self = shift;
    $self->{routes}  = {};
    $self->{calling} = grep {defined} $self->{listener}, map { $_->{callback} } @{ $self->{subscriptions} };
    return $self->_settle;
}

# --- request and reply ---
#
# The payload of a request is a token, an LF, and the question. An answer goes to !<asker> and begins with the same line
# (clients/PROTOCOL.md, "Request and reply").

sub request {
    my ($self, $channel, $question, $timeout) = @_;
    my $deadline = Bccn::Connection::deadline_in($timeout);
    $self->_enter;
    $self->_publish_request($channel, $question // '');
    for my $questions (0 .. QUESTIONS) {
        my $due = Bccn::Connection::now() + ($questions ? ASK_EVERY : ASK_AFTER);
        $due = $deadline if $self->{has_listeners} || $due > $deadline;
        my $answer = $self->_next_answer($due);
        return $answer if $answer || $due == $deadline;
        next if $self->{has_listeners};
        my $said = $questions < QUESTIONS ? $self->_listeners("$channel $self->{token}$self->{requests}?") : '0';
        $self->_fail('nobody', "nobody listens to $channel") if $said eq '0';
        $self->{has_listeners} ||= $said ne '0 asked';
    }
    return $self->_next_answer($deadline);
}

# Publishes a request, and finds out whether the daemon took it and whether anybody on this host listens.
sub _publish_request {
    my ($self, $channel, $question) = @_;
    if (!$self->{listening} && !$self->{hearing}) {
        $self->_ask('CMSG listen');
    }
    elsif ($self->{batch} || $self->{published} > $self->{confirmed}) { # any later rejection is about this request
        $self->_ask;
    }
    $self->{hearing}       = 1;
    $self->{answers}       = [];
    $self->{requested}     = $channel;
    $self->{has_listeners} = 0; # 1: somebody listens, or nobody can know
    $self->{requests}++;
    local @{$self}{qw(rejection rejections)} = (undef, 0);
    $self->send($channel, "$self->{token}$self->{requests}\n$question");
    $self->{has_listeners} ||= $self->_listeners($channel) ne '0';
    $self->_fail(@{ $self->{rejection} }) if $self->{rejection};
    return;
}

# Returns how many listen on this host, and the result of asking the others; empty: the daemon does not know the
# request.
sub _listeners {
    my ($self, $value) = @_;
    my $said = eval { $self->_request('listeners', $value) };
    die $@ if !defined $said && (!ref $@ || $@->code ne 'unknown-key'); ## no critic (RequireCarping)
    return $said // '';
}

sub next_answer {
    my ($self, $timeout) = @_;
    $self->_enter;
    return $self->_next_answer(Bccn::Connection::deadline_in($timeout));
}

sub _next_answer {
    my ($self, $deadline) = @_;
    while (!@{ $self->{answers} }) {
        $self->_check_backlog;
        next if $self->_read || $self->_await_input($deadline);
        $self->_settle;
        return;
    }
    my $answer = shift @{ $self->{answers} };
    $answer->{payload} = substr $answer->{payload}, 1 + index $answer->{payload}, "\n";
    $self->_settle;
    return $answer;
}

sub question {
    my ($self, $message) = @_;
    my $at = question_at($message->{payload});
    return defined $at ? substr $message->{payload}, $at : undef;
}

sub reply {
    my ($self, $request, $answer) = @_;
    my $at = question_at($request->{payload});
    my $src = $request->{src} // '?';
    $self->_fail('invalid', 'not a request with a known sender (which needs the format full)')
        if !defined $at || $src =~ /[?*]/;
    return $self->send_to($src, substr($request->{payload}, 0, $at) . ($answer // ''));
}

sub serve {
    my ($self, $pattern, $code) = @_;
    $self->_fail('invalid', 'serve needs the format full, which shows who asks') if !$self->{wanted}{format};
    return $self->listen($pattern, sub {
        my ($message, $bus) = @_;
        my $question = $bus->question($message) // return;
        my $answer = $code->($question, $message);
        return defined $answer && $bus->reply($message, $answer);
    });
}

1;

__END__

=encoding utf8

=head1 NAME

Bccn - LISTEN/NOTIFY between the programs of a network segment: the client of the bccnd bus

=head1 SYNOPSIS

    use Bccn;

    my $bus = Bccn->new;
    $bus->subscribe('sensors/>');
    $bus->publish('sensors/kitchen/temperature', '21.5');
    while (my $message = $bus->recv) {
        print "$message->{channel} $message->{payload}\n";
    }

=head1 DESCRIPTION

A bus is a connection to the daemon of this host. It reconnects by itself, with every subscription and setting. A call
waits for that, as for any answer of the daemon, up to the C<timeout> of the bus. Times are seconds and may have
fractions; without a time a call waits for ever.

Payloads are bytes: encode characters first (L<Encode>). One thread uses a bus; a new thread gets no copy of it.

=head1 A BUS

=head2 Bccn->new(%options)

Connects to the daemon. Fails with C<unavailable>, C<refused>, or the daemon's answer to the options:

    address    the socket: a path, or @name for an abstract one; by default the usual places:
               $ENV{BCCN_SOCKET}, /run/bccnd/bus.sock, $ENV{XDG_RUNTIME_DIR}/bccnd/bus.sock
    name       the name of the bus; by default the daemon gives <host>/<program>/<pid>
    format     'plain', or 'full': messages have src, seq, peer, time and verdict
    pack       1: several messages share a packet, both ways: much faster for bursts
    echo       0: own messages that match are not received
    separator  of the tokens in patterns: '/' or '.'
    queue      what may wait in the daemon: { packets => 1000, bytes => 1e6, policy => 'block' },
               or a part of it; policies are drop-oldest, drop-newest, block and disconnect
    tap        1: every datagram of the segment is received, too (needs the right to tap)
    reconnect  0: calls fail with 'unavailable' once the connection is gone
    timeout    how long a call waits for the daemon (5)
    wait       how long to keep trying for the first connection (0)
    on_notice  called with each notice (below); by default notices are warnings

=head2 close

Closes the connection at once; call C<barrier> first to be sure that everything has arrived. The end of the last
reference closes the bus, too.

=head2 get_name, whoami

Returns the name of the bus, as others see it.

=head2 set_name($name)

Takes another name, and keeps it over reconnections.

=head2 heartbeat_start($seconds, $text)

Makes the daemon publish the text, if any, on C<< heartbeat/<name> >> every so many seconds. Another call changes the
text, and 0 seconds end the heartbeats. They go on over reconnections.

=head2 control($key, $value)

Sends any control request of the protocol and returns the value of its answer. A new connection does not repeat it.

=head2 lost

Returns how many messages the daemon has dropped because this program read too slowly.

=head1 PUBLISHING

=head2 publish, send, send_topic($channel, $payload)

Hands one message to the daemon. The call waits only while the daemon is away or takes no more; after C<unavailable>
and C<timeout> the message was not sent. If the daemon then rejects the message, a notice says so, and the next
C<barrier> fails. The three names mean the same.

=head2 send_all($payload)

Publishes to every listening program of the segment.

=head2 send_to($target, $payload)

Publishes to the program of that name, or to all programs below it.

=head2 batch($code)

Sends what the code publishes when the code ends or dies; with C<pack>, in as few packets as possible.

=head2 barrier

Returns once the daemon has processed everything sent before. Fails with the first error that the daemon reported about
a message since the last barrier, or with C<unconfirmed> if the connection broke in between.

=head1 RECEIVING

A message is a hash:

    channel   '!' and '!<target>': to all, to this program
    payload
    lost      how many messages the daemon dropped directly before this one,
              because this program read too slowly

and in the format full:

    src, seq  the source, and the number of the message within it
    peer      'ip:port', or 'local'
    time_ns   when the daemon received it, in nanoseconds of Unix time
    verdict   'ok'; 'retained': a last value from before the subscription; others only for a tap
    datagram  the datagram as it is on the wire

=head2 subscribe($pattern)

Subscribes, and returns when the subscription is in force; after a failure there is none. C<recv> and C<dispatch> return
its messages. The pattern
C<!> stands for messages to this program and to all.

=head2 listen($pattern, $callback)

Subscribes, too, but C<recv> and C<dispatch> pass the messages to C<< $callback->($message, $bus) >>. If the callback
dies, so do they.

=head2 unsubscribe($pattern)

Takes back the last subscription to the pattern, with or without a callback. It ends the subscription even if the daemon
does not answer.

=head2 recv($timeout)

Waits for the next message that is not for callbacks alone, and calls the callbacks meanwhile; C<undef>: none in time.
While the daemon is away the call waits and does not fail.

=head2 dispatch

Handles all messages that wait, without waiting for more: calls the callbacks, and returns the messages without one.

=head2 fileno

Returns a descriptor for select, poll and epoll loops: when it is readable, call C<dispatch>. It stays the same over
reconnections, but not over fork. It needs a 64-bit Linux on x86, ARM, RISC-V, POWER, LoongArch or s390, and fails
elsewhere with C<unsupported>.

    my $inputs = IO::Select->new($bus->fileno, \*STDIN);
    for my $ready ($inputs->can_read) { ... }

=head1 REQUEST AND REPLY

The payload of a request is a token, a line feed, and the question. An answer goes to the asker's name and begins with
the same line. All clients of the bus follow this convention.

=head2 request($channel, $question, $timeout)

Asks, and waits for the first answer: a message, with its payload without the line; C<undef>: none in time. Fails with
C<nobody>, within a third of a second, if no program of this host or of another with a daemon would get the request.
Other messages wait meanwhile.

=head2 next_answer($timeout)

Waits for another answer to the last request. Answers that come after the next request are dropped.

=head2 serve($pattern, $code)

Answers requests: calls C<< $code->($question, $message) >>, and replies with its value unless that is C<undef>. Needs
the format full, as C<reply> does.

=head2 question($message)

Returns the question if the message is a request, and otherwise C<undef>.

=head2 reply($message, $answer)

Answers a request.

=head1 NOTICES

The bus reports what happens to the connection with C<< on_notice->($notice) >> at the end of a call. A notice is a hash
of C<kind>, C<count>, and C<text>, a line for people:

    lost          the daemon dropped `count` messages: this program read too slowly
    rejected      the daemon rejected a message, or a setting on a new connection; `code` says why
    revoked       the daemon took back a right, and what rested on it has ended
    closing       the daemon closes the connection; the text says why
    disconnected  the connection ended; `count` published messages may not have been taken
    reconnected   there is a connection again, with every subscription in force

=head1 ERRORS

Methods die with a Bccn::Error. Its C<code> is a word for programs, and its C<text> a line for people; as a string it is
the line and the place of the call.

    if (!eval { $bus->barrier; 1 }) {
        die $@ if !ref $@ || $@->code ne 'too-large';
    }

    invalid      an argument that cannot be sent at all
    unavailable  no daemon, or it went away and did not come back in time
    unconfirmed  the daemon went away: messages may not have been published
    timeout      the daemon does not answer or takes no more
    nobody       nobody listens to this request
    backlog      too many messages wait: receive them before asking
    protocol     the daemon sent a packet that is not of this protocol
    closed       the bus is closed

Other codes are those of the daemon: bad-channel, bad-pattern, too-large, name-taken, refused ...

=head1 FORK

A child may use the bus of its parent. The first call opens a connection of its own, with the same subscriptions, under
the name C<< <parent's name>/<pid> >>. Or the child opens another bus. Messages that waited for the parent stay with the
parent. The daemon gives the sequence numbers; there is no method to get or set them.

=head1 SIGNALS

A call that waits goes on waiting after a signal handler has run; a handler that dies ends it. The bus raises no
SIGPIPE.

=head1 LICENSE

MIT.

=cut
