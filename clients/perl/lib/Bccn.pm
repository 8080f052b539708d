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

use constant {
    ROUTES_LIMIT => 1024, # channels whose takers are remembered
    ASK_AFTER    => 0.02, # seconds; whoever answers at once costs the segment no question
    ASK_EVERY    => 0.1,  # a daemon answers in a fraction of that
    QUESTIONS    => 3,    # of which all must be lost, or their answers, to take somebody for nobody
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
        listening     => 0,  # to `!` for the program
        hearing       => 0,  # to it for answers to requests
        listener      => undef,
        calling       => 0,  # callbacks
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
    delete $self->{readiness}; # first: in a child of fork the parent goes on watching
    $self->_let_go;
    @{$self}{qw(closed pid)} = (1, 0);
    return;
}

# A thread has nothing of another's bus.
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
    *send_topic = \&send; # bccn.txt's name for it
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
    $self->_ensure; # which tells the limit
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
    $self->_fail($first->[0], $first->[1] . ($count > 1 ? '; so were ' . ($count - 1) . ' more' : '')) if $first;
    $self->_fail('unconfirmed', "the daemon went away: up to $doubt messages may not have been published") if $doubt;
    return $self->_settle;
}

# --- subscribing and receiving ---

sub listen {
    my ($self, $pattern, $callback) = @_;
    $self->_enter;
    $self->_ensure;
    if ($pattern eq '!') { # no pattern of the protocol, but a request of its own
        $self->_request('listen');
        @{$self}{qw(listening listener)} = (1, $callback);
    }
    else {
        $self->_fail('invalid', "pattern '$pattern': only ASCII, without white space") if $pattern =~ /[^!-~]/;
        my $subscription = {
            pattern  => $pattern,
            regex    => pattern_regex($pattern, $self->{separator}),
            callback => $callback,
        };
        push @{ $self->{subscriptions} }, $subscription;
        if (!eval { $self->_ask("SUB $pattern", 1); 1 }) {
            my $error = $@;
            @{ $self->{subscriptions} } = grep { $_ != $subscription } @{ $self->{subscriptions} };
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
    $self->_ensure;
    my $subscriptions = $self->{subscriptions};
    my ($last) = grep { $subscriptions->[$_]{pattern} eq $pattern } reverse 0 .. $#{$subscriptions};
    $self->_fail('invalid', "pattern $pattern: not subscribed") if !defined $last;
    splice @{$subscriptions}, $last, 1;
    $self->_reroute;
    $self->_ask("UNSUB $pattern", 1);
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

# Call whom a message is for; whether it is (also) for recv.
sub _deliver {
    my ($self, $message) = @_;
    my $route = $self->{routes}{ $message->{channel} } // $self->_route($message->{channel});
    my ($wanted, @callbacks) = @{$route};
    $_->($message, $self) for @callbacks;
    return $wanted;
}

sub _route {
    my ($self, $channel) = @_;
    my @takers = $channel =~ /\A!/ ? $self->{listener}
        : map { $_->{callback} } grep { $channel =~ $_->{regex} } @{ $self->{subscriptions} };
    my @callbacks = grep {defined} @takers;
    $self->{routes} = {} if keys %{ $self->{routes} } >= ROUTES_LIMIT;
    return $self->{routes}{$channel} = [ @callbacks < @takers || !@callbacks, @callbacks ];
}

sub _reroute {
    my $self = shift;
    $self->{routes}  = {};
    $self->{calling} = grep {defined} $self->{listener}, map { $_->{callback} } @{ $self->{subscriptions} };
    return $self->_settle;
}

# --- request and reply: a request's payload is a line of the asker's choice, the token, and the question; its answer
# goes to !<asker> and begins with the same line ---

sub request {
    my ($self, $channel, $question, $timeout) = @_;
    my $deadline = Bccn::Connection::deadline_in($timeout);
    $self->_enter;
    $self->_publish_request($channel, $question // '');
    for my $questions (0 .. QUESTIONS) {
        my $due = Bccn::Connection::now() + ($questions ? ASK_EVERY : ASK_AFTER);
        $due = $deadline if $self->{heard} || $due > $deadline;
        my $answer = $self->_next_answer($due);
        return $answer if $answer || $due == $deadline;
        next if $self->{heard};
        my $said = $questions < QUESTIONS ? $self->_listeners("$channel $self->{token}$self->{requests}?") : '0';
        $self->_fail('nobody', "nobody listens to $channel") if $said eq '0';
        $self->{heard} ||= $said ne '0 asked';
    }
    return $self->_next_answer($deadline);
}

# Publish a request, and learn whether it was taken, and whether anybody here listens.
sub _publish_request {
    my ($self, $channel, $question) = @_;
    if (!$self->{listening} && !$self->{hearing}) {
        $self->_ask('CMSG listen');
    }
    elsif ($self->{batch} || $self->{published} > $self->{confirmed}) { # what is rejected later is this request
        $self->_ask;
    }
    $self->{hearing}   = 1;
    $self->{answers}   = [];
    $self->{requested} = $channel;
    $self->{heard}     = 0; # by somebody, as far as is known
    $self->{requests}++;
    local @{$self}{qw(rejection rejections)} = (undef, 0);
    $self->send($channel, "$self->{token}$self->{requests}\n$question");
    $self->{heard} ||= $self->_listeners($channel) ne '0';
    $self->_fail(@{ $self->{rejection} }) if $self->{rejection};
    return;
}

# How many listen here, and what came of asking the other hosts; empty: a daemon that does not know.
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
    $self->_fail('invalid', 'no request, or (but in the format full) from nobody known')
        if !defined $at || $src =~ /[?*]/;
    return $self->send_to($src, substr($request->{payload}, 0, $at) . ($answer // ''));
}

sub serve {
    my ($self, $pattern, $code) = @_;
    $self->_fail('invalid', 'serving takes the format full: it tells whom to answer') if !$self->{wanted}{format};
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

A connection to the daemon of this host, which is made again by itself when it breaks, with every subscription and
setting. Calls wait for that, as for anything of the daemon, up to the C<timeout> of the bus. Times are seconds, also
fractions of one; without one a call waits for ever.

Payloads are bytes: encode characters first (L<Encode>). One bus belongs to one thread; a new thread has none.

=head1 A BUS

=head2 Bccn->new(%options)

Connects. Fails with C<unavailable>, C<refused>, or with what the daemon has against the options:

    address    its socket: a path, or @name for an abstract one; without, $ENV{BCCN_SOCKET},
               else /run/bccnd/bus.sock, else that of $ENV{XDG_RUNTIME_DIR}
    name       own name; without, the daemon's <host>/<program>/<pid>
    format     'plain' or 'full': messages with src, seq, peer, time and verdict
    pack       1: many messages in one packet, both ways: much faster for bursts
    echo       0: own messages that match are not received
    separator  of the tokens in patterns: '/' or '.'
    queue      the daemon's queue for us: { packets => 1000, bytes => 1e6, policy => 'block' },
               or parts of it; policies are drop-oldest, drop-newest, block and disconnect
    tap        1: every datagram of the segment, too (needs the right)
    reconnect  0: calls fail with 'unavailable' once the connection is gone
    timeout    how long a call waits for the daemon (5)
    wait       how long to keep trying for the first connection (0)
    on_notice  called with each notice (below); without, they are warnings

=head2 close

Lets go of the connection at once: call C<barrier> first to know that all has arrived. So does the end of the last
reference.

=head2 get_name, whoami

Own name, as others see it.

=head2 set_name($name)

Takes another one, and keeps it over reconnections.

=head2 heartbeat_start($seconds, $text)

Has the daemon say on C<< heartbeat/<name> >> every so many seconds that we are there. The text, if any, says how we
are; another call changes it, 0 seconds end it.

=head2 control($key, $value)

Any control request of the protocol; returns the value of its answer. Not said again to a new connection.

=head2 lost

How many messages the daemon has dropped because this program read too slowly.

=head1 PUBLISHING

=head2 publish, send, send_topic($channel, $payload)

Hands one message to the daemon; waits only while it is away or takes no more. What the daemon then rejects is a
notice, and an error of the next C<barrier>. After C<unavailable> and C<timeout> it was not sent.

=head2 send_all($payload)

To every listening program of the segment.

=head2 send_to($target, $payload)

To the program of that name, or to all below it.

=head2 batch($code)

What is published while the code runs is sent when it ends, in as few packets as can be with C<pack>. Also when it
dies.

=head2 barrier

Returns once the daemon has processed everything sent before. Fails with the first that it had against a message since
the last barrier; with C<unconfirmed> when the connection broke in between.

=head1 RECEIVING

A message is a hash:

    channel   '!' and '!<target>': to all, to this program
    payload
    lost      messages for us that the daemon dropped directly before it: we read too slowly

and in the format full:

    src, seq  the sender, and its number
    peer      'ip:port', or 'local'
    time_ns   when the daemon received it: Unix time, nanoseconds
    verdict   'ok'; 'retained': a last value from before the subscription; others only for a tap
    datagram  as it was on the wire

=head2 subscribe($pattern)

Returns when the subscription is in force. Its messages come out of C<recv> and C<dispatch>. The pattern C<!> means
what is directed to this program or to all.

=head2 listen($pattern, $callback)

The same, but its messages go to C<< $callback->($message, $bus) >>, from inside C<recv> and C<dispatch>. What it dies
of, they die of.

=head2 unsubscribe($pattern)

Takes back one of either, the last one of that pattern.

=head2 recv($timeout)

The next message that is not for callbacks only, calling those meanwhile; C<undef>: none in time. Times out rather than
fails while the daemon is away.

=head2 dispatch

Handles all that is pending, without waiting: calls the callbacks, returns the messages that none took.

=head2 fileno

A descriptor for select, poll and epoll loops: readable means C<dispatch>. It stays the same over reconnections, but not
over fork. Needs a 64-bit Linux on x86, ARM, RISC-V, POWER, LoongArch or s390, otherwise C<unsupported>.

    my $inputs = IO::Select->new($bus->fileno, \*STDIN);
    for my $ready ($inputs->can_read) { ... }

=head1 REQUEST AND REPLY

A request's payload is a line of the asker's choice, a line feed, and the question; its answer goes to the asker's name
and begins with the same line. All clients of the bus do it like that.

=head2 request($channel, $question, $timeout)

Asks, and waits for the first answer: a message, its payload without the line; C<undef>: none in time. Fails with
C<nobody>, within a third of a second, when no program of this host or of another with a daemon would get it. Other
messages wait meanwhile.

=head2 next_answer($timeout)

Another answer to the last request. One that comes after the next request is passed over.

=head2 serve($pattern, $code)

Answers requests: C<listen> with C<< $code->($question, $message) >>, whose value is the answer; C<undef>: none. Takes
the format full, as C<reply> does.

=head2 question($message)

The question, if the message is a request; otherwise C<undef>.

=head2 reply($message, $answer)

Answers it.

=head1 NOTICES

What happens to the connection besides is told by C<< on_notice->($notice) >> at the end of a call (if it fails without
one, of the next call), a hash of C<kind>, C<count>, and C<text>, a line for people:

    lost          messages: they came faster than they were read
    rejected      something published, or wanted again, was not taken; `code` says why
    revoked       a right was taken back, and what rests on it has ended
    closing       the daemon says that it closes the connection, and why
    disconnected  `count` published messages may not have been taken
    reconnected   with every subscription in force

=head1 ERRORS

Methods die with a Bccn::Error: C<code> is a word for programs, C<text> a line for people; as a string, it is the line
and the place of the call.

    if (!eval { $bus->barrier; 1 }) {
        die $@ if !ref $@ || $@->code ne 'too-large';
    }

    invalid      an argument that cannot be sent
    unavailable  no daemon, or it went away and did not come back in time
    unconfirmed  it is back, but what was handed to the one before may not have been published
    timeout      it does not answer or take more
    nobody       a request where nobody listens
    backlog      asking and asking without receiving what waits
    protocol     the daemon sent what is not of the protocol
    closed       the bus was closed

and the words of the daemon: bad-channel, bad-pattern, too-large, name-taken, refused ...

=head1 FORK

A child may use its parent's bus: the first call gives it a connection of its own, subscribed alike, named
C<< <parent's name>/<pid> >> (pattern B of the protocol's "Fork handling"); or it makes one for itself (pattern A). What
waited for the parent stays the parent's. Sequence numbers are given by the daemon; there is none to get or set.

=head1 SIGNALS

Calls that wait go on waiting after a signal handler has run; a handler that dies ends them. SIGPIPE is not raised.

=head1 LICENSE

MIT.

=cut
