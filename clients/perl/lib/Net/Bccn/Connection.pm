package Net::Bccn::Connection;

# The connection of a Net::Bccn, which reconnects when it breaks. Everything here is private to the two classes.
#
#     program <- receive, callbacks <- backlog <- _read <- socket
#     program <- request            <- pending <-/
#
# Rules:
# 1. The bus remembers name, format, subscriptions and so on; `_greet` sends all of them to a new connection.
# 2. A call that waits for the daemon sends a numbered ping after its request. When the pong arrives, everything that
#    the daemon has to say about the request has arrived. A late pong to an earlier request has another number.
# 3. The socket does not block. Every wait is a select with a deadline, and keeps reading; otherwise two programs that
#    wait for each other would wait for ever. A connection that has ended is read to its end.
# 4. Messages wait in `backlog` until the program takes them; the bus drops none. If the program does not receive, its
#    messages wait in the bounded queue of the daemon.
# 5. The bus reports notices at the end of a call, and never while it reads a packet: the callback may call the bus.
# 6. A subscribe that fails leaves nothing. If its SUB has left, it is withdrawn: an UNSUB and a ping follow, and until
#    the pong the bus drops the messages that came for it alone. So is a watch, by an unwatch.
# 7. A child of fork only closes its copy of the parent's connection.
# 8. The deadline of a call holds while it connects, too: what is left of a greeting goes on in the next call. `socket`
#    is the connection, and also `ready` once it is greeted.
#
# Times are seconds of the monotonic clock. Functions about one connection return false if it broke meanwhile.

use strict;
use warnings;

use Errno qw(EACCES EAGAIN ECONNRESET EINTR EMSGSIZE ENOBUFS ENOMEM);
use Socket qw(AF_UNIX MSG_NOSIGNAL SOCK_CLOEXEC SOCK_NONBLOCK SOCK_SEQPACKET pack_sockaddr_un);
use Time::HiRes qw(CLOCK_MONOTONIC CLOCK_REALTIME clock_gettime sleep);

use Net::Bccn::Error;
use Net::Bccn::Protocol qw(PACK pack_packets parse unpack_packets);

our $VERSION = '0.1.0';

use constant {
    SERVICE_SOCKET => '/run/bccnd/bus.sock',
    NEVER          => 9**9**9,

    # Sizes in bytes. No packet is longer; unix(7) limits the address of a socket.
    PACKET_LIMIT  => 128 * 1024,
    PATH_LIMIT    => 107,

    # The bus sends no PACK longer than this, even if the daemon takes one.
    GATHERED_LIMIT => 65536,

    # About so many bytes belong to a message besides its payload.
    MESSAGE_COST => 1024,

    # With so many bytes of messages waiting, calls that ask the daemon fail.
    BACKLOG_LIMIT => 64 * 1024 * 1024,

    # A call that began below that gives up here: what the daemon had queued comes before its answer.
    OVERFLOW_LIMIT => 128 * 1024 * 1024,

    # A program that only sends still reads what the daemon reports: how often, and until how many bytes wait.
    GLANCE_INTERVAL => 0.1,
    GLANCE_LIMIT    => 1024 * 1024,

    # Packets or messages that one call handles without waiting.
    READ_LIMIT => 1024,

    # Notices that wait to be reported; the oldest give way. The daemon can send any number of them during one call.
    NOTICES_LIMIT => 1024,

    # A failed connect to a local socket costs microseconds, so the first pause is short.
    BACKOFF_FIRST => 0.02,
    BACKOFF_LIMIT => 1,

    # select does not wait until the kernel has memory again.
    MEMORY_PAUSE => 0.001,

    # How soon a poll loop goes on with a greeting for which the socket had no room.
    GREETING_PAUSE => 0.005,

    # The longest time of one select.
    WAIT_LIMIT => 1_000_000,
};

# Notices that come for each message: those of a kind and a code that wait are one. A program that publishes much and
# asks seldom would get very many.
my %REPEATED = (rejected => 1, unclaimed => 1);

sub now { return clock_gettime(CLOCK_MONOTONIC) }

sub deadline_in { return defined $_[0] ? now() + $_[0] : NEVER }

# --- a call begins and ends ---

sub _enter {
    my $self = shift;
    return if $self->{pid} == $$;
    $self->_fail('closed', 'the bus is closed') if $self->{closed};
    return $self->_become_child;
}

# At the end of a call that is `unsettled`: reports notices, and sets the timer of poll loops.
sub _settle {
    my $self = shift;
    my $readiness = $self->{unsettled} = $self->{readiness};
    while (my $notice = shift @{ $self->{notices} }) {
        $notice->{text} .= ", $notice->{count} times" if $notice->{count} > 1 && $REPEATED{ $notice->{kind} };
        $self->{on_notice}->($notice);
    }
    $readiness->ring_at(@{ $self->{backlog} } || %{ $self->{news} } ? 0 : $self->{ready} ? NEVER : $self->_due) if $readiness;
    return;
}

# When to go on without a connection: to connect, to greet, or to give the greeting up.
sub _due {
    my $self = shift;
    return $self->{retry_at} if !$self->{socket};
    return @{ $self->{greeting}{packets} } ? now() + GREETING_PAUSE : $self->{greeting}{until};
}

# When a call gives up that waits for the daemon; one for a request does with that.
sub _patience {
    my $self     = shift;
    my $deadline = deadline_in($self->{timeout});
    my $until    = $self->{ask_until} // $deadline;
    return $until < $deadline ? $until : $deadline;
}

sub _fail {
    my ($self, $code, $text) = @_;
    $self->_settle if !$self->{greets};
    return Net::Bccn::Error->throw($code, $text);
}

sub _notice {
    my ($self, $kind, $count, $text, $code) = @_;
    my $notices = $self->{notices};
    my $last    = @{$notices} ? $notices->[-1] : { kind => '' };
    $self->{unsettled} = 1;
    if ($REPEATED{$kind} && $last->{kind} eq $kind && ($last->{code} // '') eq ($code // '')) {
        $last->{count} += $count;
    }
    else {
        push @{$notices}, { kind => $kind, count => $count, text => $text, defined $code ? (code => $code) : () };
        shift @{$notices} if @{$notices} > NOTICES_LIMIT;
    }
    return;
}

# Makes the bus of a child of fork a source of its own, without the messages of its parent.
sub _become_child {
    my $self = shift;
    $self->{wanted}{name} = "$self->{name}/$$" if $self->{name} ne '';
    delete $self->{readiness}; # first: _let_go must not remove the socket from the epoll of the parent
    $self->_let_go;
    $self->_start;
    return;
}

# Sets the state of a process that has not connected yet.
sub _start {
    my $self  = shift;
    my %state = (
        pid           => $$,
        name          => '',
        was_connected => 0,
        backoff       => BACKOFF_FIRST,
        tried_at      => 0,
        retry_at      => 0,
        glance_at     => 0,
        backlog       => [],
        waiting       => 0, # bytes in the backlog
        pending       => {}, # number of a request of ours: channel, replies, has_listeners
        notices       => [],
        news          => {}, # pattern of a watch: whether it is wanted, which its callback may have to be told
        batch         => undef,
        batch_size    => 0,
        lost          => 0, # before the next message
        lost_ever     => 0,
        asked         => 0,
        answered      => 0,
        withdrawn     => [], # packet, said: it has left, ping: the number of the ping behind it; of a SUB its regex
        overhears     => 0,  # a SUB or listen that has failed makes the daemon deliver `!`
        sifting       => 0,  # not every message that comes is for the program
        published     => 0,
        confirmed     => 0,
        in_doubt      => 0,
        rejections    => 0,
        rejection     => undef, # the first since the last barrier
        complaint     => undef, # about the current request
        token         => _random() . '.',
    );
    @{$self}{ keys %state } = values %state;
    return;
}

# Returns what nobody can guess.
sub _random {
    my ($source, $bytes);
    return unpack 'H*', $bytes if open($source, '<:raw', '/dev/urandom') && sysread $source, $bytes, 8;
    return sprintf '%x-%x', $$, clock_gettime(CLOCK_REALTIME) * 1e9; # a root without devices
}

# --- making a connection ---

# Connects if there is no connection; tries until the deadline. The first connection has the usual time for its greeting,
# and where a daemon is busy.
sub _ensure {
    my ($self, $deadline) = @_;
    return if $self->{ready};
    my $patience = $self->_patience;
    $deadline //= $patience;
    until ($self->_try($deadline)) {
        $deadline = $patience if $self->{opening} && $self->{busy} && $patience > $deadline;
        $self->_fail('unavailable', $self->{reason}) if now() >= $deadline;
    }
    return;
}

# Tries once, when it is time for it. At the deadline there is one more attempt, unless the last one was a moment ago: a
# daemon that is back is found by calls with a timeout shorter than the pause. True: there is a connection.
sub _try {
    my ($self, $deadline) = @_;
    $self->_fail('closed', 'the bus is closed') if $self->{closed}; # a signal handler may have closed it
    $self->_fail('unavailable', 'the connection to the daemon is gone')
        if $self->{was_connected} && !$self->{reconnect};
    if (!$self->{socket}) {
        my $until = $self->{retry_at} < $deadline ? $self->{retry_at} : $deadline;
        my $wait  = $until - now();
        sleep $wait if $wait > 0;
        my $now = now();
        return if $now < $until; # a signal came
        return if $now < $self->{retry_at} && $now < $self->{tried_at} + BACKOFF_FIRST;
    }
    my $reason = $self->_attempt($deadline);
    if (defined $reason) {
        $self->{reason} = $reason;
        return if $self->{socket}; # the greeting goes on in the next call
        $self->_put_off;
        $self->{backoff} = $self->{backoff} * 2 < BACKOFF_LIMIT ? $self->{backoff} * 2 : BACKOFF_LIMIT;
        return;
    }
    $self->_notice('reconnected', 0, 'connected to the daemon again') if $self->{was_connected};
    $self->{was_connected} = 1;
    $self->{backoff}       = BACKOFF_FIRST;
    $self->{retry_at}      = 0;
    return 1;
}

# Has the next attempt to connect wait.
sub _put_off {
    my $self   = shift;
    my $jitter = now() * 1e6 % 1000 / 1000; # spreads clients, and children of one parent, too
    $self->{retry_at} = now() + $self->{backoff} * (0.5 + $jitter);
    return;
}

# Connects and greets once, or goes on with that, until the deadline. Returns why there is no connection, or not yet; or
# undef.
sub _attempt {
    my ($self, $deadline) = @_;
    if (!$self->{socket}) {
        $self->{tried_at} = now();
        my $reason = $self->_connect;
        return $reason if defined $reason;
        undef $self->{complaint};
        $self->{greeting} = { packets => [ $self->_wishes ], until => deadline_in($self->{timeout}) };
    }
    my $until = $self->{greeting}{until};
    $deadline = $until if $self->{opening} || $deadline > $until;
    local $self->{greets} = 1;
    my $reason;
    if (!eval { $reason = $self->_greet($deadline); 1 }) {
        my $error = $@;
        my $is_late = ref $error && eval { $error->code eq 'timeout' };
        return $error->text if $is_late && now() < $until;
        $self->_let_go;
        return $error->text if $is_late;
        die $error; ## no critic (RequireCarping)
    }
    $self->_let_go if defined $reason;
    $self->{ready} = $self->{socket};
    delete $self->{greeting};
    return $reason;
}

# Makes the socket. Returns why that failed, or undef.
sub _connect {
    my $self = shift;
    my $path = _usual_path($self->{path});
    $self->_fail('invalid', "$path: too long for a socket") if length $path > PATH_LIMIT;
    (my $name = $path) =~ s/\A@/\0/;
    socket my $socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0 or return "no socket: $!";
    my $is_connected = connect $socket, pack_sockaddr_un($name);
    $self->{busy} = !$is_connected && $! == EAGAIN;
    return "the daemon at $path is busy: more programs connect than it accepts" if $self->{busy};
    if (!$is_connected) {
        $self->_fail('refused', "no permission to connect to $path") if $! == EACCES && !$self->{was_connected};
        return "no daemon at $path: $!";
    }
    $self->{socket} = $socket;
    $self->{readiness}->watch(fileno $socket) if $self->{readiness};
    return;
}

sub _usual_path {
    my ($path) = @_;
    my $chosen = $path // $ENV{BCCN_SOCKET} // '';
    return $chosen if $chosen ne '';
    my $own = ($ENV{XDG_RUNTIME_DIR} // '') . '/bccnd/bus.sock';
    return $ENV{XDG_RUNTIME_DIR} && !-e SERVICE_SOCKET() && -e $own ? $own : SERVICE_SOCKET;
}

# Returns the packets that a new connection gets: settings, watches and subscriptions.
sub _wishes {
    my $self   = shift;
    my $wanted = $self->{wanted};
    my @wishes = map { defined $wanted->{$_} ? "CMSG $_\0$wanted->{$_}" : () }
        qw(name separator format pack queue tap heartbeat);
    push @wishes, 'CMSG echo/off' if !$self->{echo};
    push @wishes, 'CMSG listen'   if $self->{listening} || $self->{hearing};
    push @wishes, map {"CMSG watch\0$_"} sort keys %{ $self->{watches} };
    return @wishes, (map {"SUB $_->{pattern}"} @{ $self->{subscriptions} }), 'CMSG whoami';
}

# Sends what is left of the greeting, and waits for the answer to it. Returns why that failed, or undef; fails with
# `timeout` if it is not complete at the deadline.
sub _greet {
    my ($self, $deadline) = @_;
    my $greeting = $self->{greeting};
    my $packets  = $greeting->{packets};
    while (@{$packets}) {
        $self->_send_here($packets->[0], $deadline) or return $self->{reason};
        shift @{$packets};
    }
    if (!$greeting->{ping}) {
        $self->_ping($deadline) or return $self->{reason};
        $greeting->{ping} = 1;
    }
    $self->_await_pong($deadline) or return $self->{reason};
    my $complaint = delete $self->{complaint} or return;
    $self->_fail(@{$complaint}) if !$self->{was_connected};

    # Our old connection may hold the name a little longer; a notice has reported any other rejection.
    return $complaint->[0] eq 'name-taken' ? $complaint->[1] : undef;
}

# Takes a packet out of the greeting. False: it has left.
sub _unsay {
    my ($self, $packet) = @_;
    my $packets = $self->{greeting} ? $self->{greeting}{packets} : [];
    my ($last) = grep { $packets->[$_] eq $packet } reverse 0 .. $#{$packets};
    return defined $last && splice @{$packets}, $last, 1;
}

sub _let_go {
    my $self = shift;
    my $socket = delete $self->{socket} or return;
    delete @{$self}{qw(ready greeting)};
    $self->{readiness}->watch(undef) if $self->{readiness};
    close $socket;
    $self->{name}       = '';
    $self->{pack_limit} = 0;
    $self->{withdrawn}  = []; # a new connection knows nothing of them
    $self->{overhears}  = 0;
    $self->{sifting}    = $self->{requests};
    return;
}

# Ends a connection that has been read to its end.
sub _lose {
    my ($self, $reason) = @_;
    my $doubt    = $self->{published} - $self->{confirmed};
    my $is_ready = $self->{ready};
    $self->_let_go;
    $self->_put_off; # a daemon may close each connection at once
    $self->{reason}    = $reason;
    $self->{confirmed} = $self->{published};
    $self->{in_doubt} += $doubt;
    $self->_notice('disconnected', $doubt, $reason) if $is_ready;
    return;
}

# --- reading ---

# Reads and handles one packet. Returns 1; 0: there is none; undef: the connection has ended.
sub _read {
    my $self = shift;
    while (my $socket = $self->{socket}) {
        my $size = sysread $socket, $self->{buffer}, PACKET_LIMIT + 1;
        if ($size) {
            return 1
                if $size <= PACKET_LIMIT # or what is behind that was cut off
                && (substr($self->{buffer}, 0, 5) eq PACK ? $self->_handle_pack : $self->_handle($self->{buffer}));
            my $text = 'the daemon sent a packet that is not of this protocol';
            $self->_lose($text);
            Net::Bccn::Error->throw('protocol', $text);
        }
        return $self->_lose('the daemon went away') if defined $size;
        return 0 if $! == EAGAIN;
        next if $! == EINTR || $! == ECONNRESET; # ECONNRESET comes once; earlier packets can still be read
        return $self->_lose("the daemon went away: $!");
    }
    return;
}

sub _handle_pack {
    my $self = shift;
    for my $packet (@{ unpack_packets($self->{buffer}) // return }) {
        $self->_handle($packet) or return;
    }
    return 1;
}

# Handles one packet. It takes the packet from @_, which saves a copy. False: it cannot be read.
sub _handle {
    my $self  = $_[0];
    my $event = parse($_[1]) // return;
    return $self->_control(@{$event}) if ref $event eq 'ARRAY';
    return 1 if $self->{sifting} && ($self->_takes_reply($event) || $self->_is_unwanted($event));
    $event->{lost} = $self->{lost};
    $self->{lost} = 0;
    push @{ $self->{backlog} }, $event;
    return $self->{waiting} += MESSAGE_COST + 2 * length $event->{payload};
}

# Whether a message is a reply to a request of ours, which then has it, or came for such replies alone.
sub _takes_reply {
    my ($self, $message) = @_;
    return 0 if !$self->{requests} || substr($message->{channel}, 0, 1) ne '!';
    if (index($message->{payload}, $self->{token}) == 0) {
        my ($number, $kind) = substr($message->{payload}, length $self->{token}) =~ /\A([0-9]+)([\n?])/;
        my $request = $self->{pending}{ $number // '' };
        if ($message->{channel} ne ($request ? $request->{channel} : $self->{requested})) { # not our own request
            return 1 if !$request; # too late
            $request->{has_listeners} = 1;
            return 1 if $kind eq '?'; # a daemon with listeners
            push @{ $request->{replies} }, $message;
            $self->{waiting} += MESSAGE_COST + 2 * length $message->{payload};
            return 1;
        }
    }
    return !$self->{listening} && !@{ $self->{subscriptions} } && !$self->{wanted}{tap}; # a subscription listens, too
}

sub _control {
    my ($self, $key, $value) = @_;
    if ($key eq 'error') {
        $self->_error(split / /, $value, 2);
    }
    elsif ($key eq 'pong') {
        $self->{answered} = $value;
        @{ $self->{withdrawn} } = grep { !$_->{ping} || $_->{ping} > $value } @{ $self->{withdrawn} };
        if ($value eq $self->{asked}) {
            $self->{confirmed} = $self->{published_when_asked};
        }
        else { # the errors until now belong to a request that was given up
            undef $self->{complaint};
        }
    }
    elsif ($key eq 'dropped' && $value =~ /\A[0-9]{1,18}\z/) {
        my $some = $value == 1 ? '1 message' : "$value messages";
        $self->{lost}      += $value;
        $self->{lost_ever} += $value;
        $self->_notice('lost', $value, "$some lost: they came faster than they were read");
    }
    elsif ($key eq 'revoked') {
        $self->_notice('revoked', 1, "no longer allowed: $value");
    }
    elsif ($key eq 'wanted') { # any where but `no` means somebody
        my ($where, $pattern) = split / /, $value, 2;
        $self->{news}{ $pattern // '' } = ($where // '') ne 'no';
    }
    elsif ($key eq 'closing') {
        $self->_notice('closing', 0, "the daemon closes the connection: $value");
    }
    else { # an answer, or a notice of a newer daemon
        $self->{name} = $value if $key eq 'whoami' || $key eq 'name';
        $self->{pack_limit} = $value =~ /\Aon ([0-9]+)/ ? $1 : 0 if $key eq 'pack';
        $self->{pack_limit} = GATHERED_LIMIT if $self->{pack_limit} > GATHERED_LIMIT;
        delete $self->{news}{$value} if $key eq 'watch'; # it was about an earlier watch
        $self->{answer} = $value if $key eq ($self->{awaited} // '');
    }
    return 1;
}

sub _error {
    my ($self, $code, $text) = @_;
    $code //= '';
    my $error         = [ $code, ($text // '') . " ($code)" ];
    my $about_request = ($text // '') =~ /\A(?:CMSG|SUB|UNSUB) /;
    if ($about_request) {
        $self->{complaint} //= $error;
    }
    else {
        $self->{rejection} //= $error;
        $self->{rejections}++;
    }
    $self->_notice('rejected', 1, $error->[1], $code)
        if !$about_request || ($self->{greeting} && $self->{was_connected});
    return;
}

# Whether a message came for nothing but a subscribe that was withdrawn.
sub _is_unwanted {
    my ($self, $message) = @_;
    my $subscriptions = $self->{subscriptions};
    return 0 if !$self->{overhears} || $self->{wanted}{tap};
    return !$self->{listening} && !@{$subscriptions} if substr($message->{channel}, 0, 1) eq '!';
    return 0 if !grep { $_->{regex} && $message->{channel} =~ $_->{regex} } @{ $self->{withdrawn} };
    return !grep { $message->{channel} =~ $_->{regex} } @{$subscriptions};
}

# Returns the oldest message that waits here, or else in the socket. Tells the callbacks of watches before.
sub _next_message {
    my $self = shift;
    my $backlog = $self->{backlog};
    if (!@{$backlog} && $self->_read) {
        my $left = READ_LIMIT;
        1 while !@{$backlog} && --$left && $self->_read;
    }
    $self->_tell if %{ $self->{news} };
    my $message = shift @{ $self->{backlog} } or return;
    $self->{waiting} -= MESSAGE_COST + 2 * length $message->{payload};
    return $message;
}

# Waits until there is something to read, and reconnects when that is due. False at the deadline.
sub _await_input {
    my ($self, $deadline) = @_;
    return 1 if @{ $self->{withdrawn} } && $self->_take_back_soon;
    return $self->_wait($deadline, 1) if $self->{ready};
    my $had = @{ $self->{backlog} };
    return 1 if ($self->{socket} || $self->{retry_at} <= now()) && $self->_try(now());
    return 1 if @{ $self->{backlog} } > $had;
    my $due = $self->{socket} ? $self->{greeting}{until} : $self->{retry_at};
    $due = $deadline if $deadline < $due;
    if ($self->{socket}) {
        $self->_wait($due, 1, scalar @{ $self->{greeting}{packets} });
    }
    else {
        my $rest = $due - now();
        sleep $rest if $rest > 0;
    }
    return now() < $deadline;
}

# Waits until the socket can be read or written. False at the deadline.
sub _wait {
    my ($self, $deadline, $reading, $writing) = @_;
    my $bits = '';
    vec($bits, fileno $self->{socket}, 1) = 1;
    while (1) {
        my $left = $deadline - now();
        $left = $left < 0 ? 0 : $left > WAIT_LIMIT ? WAIT_LIMIT : $left;
        my ($read, $write) = ($reading ? $bits : undef, $writing ? $bits : undef);
        my $ready = select $read, $write, undef, $left;
        return 1 if $ready > 0 || ($ready < 0 && $! != EINTR); # the next call reports an error
        return 1 if !$self->{socket};                          # a signal handler has closed it
        return 0 if $ready == 0 && now() >= $deadline;
    }
}

# --- writing and asking ---

# Sends a packet on this connection. `$request` learns whether it has left, even if a signal handler dies.
sub _send_here {
    my ($self, $packet, $deadline, $request) = @_;
    $request //= {};
    my $late;
    utf8::downgrade($packet, 1) or $self->_fail('invalid', 'not bytes: encode the characters first');
    while (my $socket = $self->{socket}) {
        $request->{left} = defined CORE::send $socket, $packet, MSG_NOSIGNAL;
        return 1 if $request->{left};
        next if $! == EINTR;
        if ($! == EAGAIN) { # keep reading: the daemon may be waiting for us to read
            $self->_fail('timeout', 'not sent: the daemon takes no more messages') if $late;
            my $reading = $self->{waiting} < BACKLOG_LIMIT;
            $late = !$self->_wait($deadline, $reading, 1) || now() >= $deadline;
            $self->_read if $reading;
        }
        elsif ($! == ENOBUFS || $! == ENOMEM) {
            $self->_fail('timeout', 'not sent: the kernel has no memory for it') if now() >= $deadline;
            sleep MEMORY_PAUSE;
        }
        elsif ($! == EMSGSIZE) {
            $self->_fail('too-large', 'packet: ' . length($packet) . ' bytes, too many to send');
        }
        else { # the daemon is gone: read what it had sent
            my $left = READ_LIMIT;
            1 while $self->{waiting} < OVERFLOW_LIMIT && ($left-- > 0 || now() < $deadline) && $self->_read;
            $self->_lose('the daemon went away') if $self->{socket};
        }
    }
    return;
}

# Sends a packet of so many messages, over reconnections and a full socket.
sub _transmit {
    my ($self, $packet, $messages, $deadline) = @_;
    $deadline //= $self->_patience;
    do { $self->_ensure_in_time($deadline) } until $self->_send_here($packet, $deadline);
    $self->{published} += $messages;
    return;
}

# _ensure for calls that try again and again: a daemon that accepts connections and always closes them must not keep
# them busy for ever.
sub _ensure_in_time {
    my ($self, $deadline) = @_;
    $self->_fail('unavailable', $self->{reason}) if !$self->{ready} && now() > $deadline;
    return $self->_ensure($deadline);
}

# Sends the packets of a batch, in one packet if packing was agreed.
sub _flush {
    my ($self, $deadline) = @_;
    my @packets = splice @{ $self->{batch} // return };
    $self->{batch_size} = 0;
    return if !@packets;
    $deadline //= $self->_patience;
    $self->_ensure($deadline);
    my $pack = @packets > 1 && $self->{pack_limit} ? pack_packets(@packets) : '';
    return $self->_transmit($pack, scalar @packets, $deadline) if $pack ne '' && length $pack <= $self->{pack_limit};
    $self->_transmit($_, 1, $deadline) for @packets;
    return;
}

# Waits until the daemon has processed all that was sent on this connection.
sub _await {
    my ($self, $deadline) = @_;
    return $self->_ping($deadline) && $self->_await_pong($deadline);
}

sub _ping {
    my ($self, $deadline) = @_;
    $self->_send_here("CMSG ping\0" . ($self->{asked} + 1), $deadline) or return;
    $self->{published_when_asked} = $self->{published};
    return ++$self->{asked};
}

sub _await_pong {
    my ($self, $deadline) = @_;
    my $late; # much may come that is not the pong
    while ($self->{answered} ne $self->{asked}) {
        $self->_fail('timeout', 'the daemon does not answer') if $late;
        $self->_check_backlog(OVERFLOW_LIMIT);
        my $read = $self->_read // return;
        $late = $read ? now() >= $deadline : !$self->_wait($deadline, 1);
    }
    return 1;
}

# Sends a request (undef: only a ping), and waits until the daemon has processed it. If the connection breaks, the
# request is repeated on the next one, unless it is `greeted`: part of the greeting of a new connection. `$request` tells
# how far it has come.
sub _ask {
    my ($self, $packet, $greeted, $request) = @_;
    my $deadline = $self->_patience;
    my $socket   = $self->{socket} // 0;
    $self->_flush($deadline);
    while (1) {
        if (!$self->{ready}) {
            $self->_ensure_in_time($deadline);
            undef $packet if $greeted && $self->{socket} != $socket;
        }
        $self->_check_backlog(BACKLOG_LIMIT);
        next if !$self->_take_back($deadline);
        undef $self->{complaint};
        @{$request}{qw(left socket)} = (!defined $packet, $self->{socket});
        next if defined $packet && !$self->_send_here($packet, $deadline, $request);
        next if !$self->_await($deadline);
        return if !$self->{complaint};
        $request->{rejected} = 1;
        $self->_fail(@{ $self->{complaint} });
    }
}

# Whether a request was to go to this connection, and the daemon has not rejected it.
sub _is_open {
    my ($self, $request) = @_;
    return $self->{socket} && $self->{socket} == ($request->{socket} // 0) && !$request->{rejected};
}

# Has an UNSUB or unwatch sent, without waiting for it. The messages behind `$last` of the backlog that came for a SUB
# reach nobody.
sub _withdraw {
    my ($self, $packet, $regex, $last) = @_;
    push @{ $self->{withdrawn} }, { packet => $packet, regex => $regex };
    $self->_sift($last) if $regex;
    return $self->_take_back_soon;
}

# Drops those messages behind `$last` of the backlog that came for nothing but what has failed.
sub _sift {
    my ($self, $last) = @_;
    @{$self}{qw(overhears sifting)} = (1, 1);
    my $backlog = $self->{backlog};
    my ($at)    = defined $last ? grep { $backlog->[$_] == $last } 0 .. $#{$backlog} : ();
    my @new     = splice @{$backlog}, defined $at ? $at + 1 : 0;
    my $lost    = 0;
    for my $message (@new) {
        $lost += $message->{lost};
        if ($self->_is_unwanted($message)) {
            $self->{waiting} -= MESSAGE_COST + 2 * length $message->{payload};
            next;
        }
        ($message->{lost}, $lost) = ($lost, 0);
        push @{$backlog}, $message;
    }
    $self->{lost} += $lost;
    return;
}

# Sends what is left to send of withdrawals.
sub _take_back {
    my ($self, $deadline) = @_;
    return 1 if !$self->{ready};
    for my $each (my @all = @{ $self->{withdrawn} }) {
        next if $each->{ping};
        $each->{said} ||= $self->_send_here($each->{packet}, $deadline) or return;
        $self->_send_here("CMSG ping\0" . ($self->{asked} + 1), $deadline) or return;
        $each->{ping} = ++$self->{asked};
    }
    return 1;
}

# Sends what there is room for of withdrawals: the rest goes before the next request. True: messages have come
# meanwhile.
sub _take_back_soon {
    my $self = shift;
    my $had  = @{ $self->{backlog} };
    local $@;
    my $said  = eval { $self->_take_back(now()); 1 };
    my $error = $@;
    die $error if !$said && (!ref $error || $error->code ne 'timeout'); ## no critic (RequireCarping)
    return @{ $self->{backlog} } > $had;
}

# Sends a control request and returns the value of its answer. `$request` is that of _ask.
sub _request {
    my ($self, $key, $value, $request) = @_;
    local $self->{awaited} = $key;
    local $self->{answer}  = '';
    $self->_ask("CMSG $key" . (defined $value ? "\0$value" : ''), 0, $request);
    return $self->{answer};
}

sub _check_backlog {
    my ($self, $limit) = @_;
    return if $self->{waiting} <= $limit;
    return $self->_fail('backlog', scalar @{ $self->{backlog} } . ' messages wait: receive them');
}

# For programs that only send: reads now and then what the daemon reports. The daemon closes a client that reads
# nothing.
sub _glance {
    my $self = shift;
    my $now  = now();
    return if $now < $self->{glance_at};
    $self->{glance_at} = $now + GLANCE_INTERVAL;
    for (1 .. READ_LIMIT) {
        last if $self->{waiting} > GLANCE_LIMIT || !$self->_read;
    }
    return $self->_settle;
}

1;
