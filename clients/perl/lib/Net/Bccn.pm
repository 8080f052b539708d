package Net::Bccn;

use 5.026;
use strict;
use warnings;

use parent 'Net::Bccn::Connection';

use Scalar::Util qw(looks_like_number);
use Socket qw(MSG_NOSIGNAL);

use Net::Bccn::Error;
use Net::Bccn::Protocol qw(pattern_regex split_request);
use Net::Bccn::Readiness;

our $VERSION = '0.1.0';

# Channels whose callbacks are remembered.
use constant ROUTES_LIMIT => 1024;

# Nobody listens on other hosts if so many questions bring nothing, since datagrams get lost. The first question
# waits, so that a reply at once costs the segment nothing. Times are seconds.
use constant {
    QUESTIONS => 3,
    ASK_AFTER => 0.02,
    ASK_EVERY => 0.1,
};

my %DEFAULTS = (
    path      => undef,
    name      => undef,
    format    => 'plain',
    pack      => 0,
    echo      => 1,
    separator => '/',
    queue     => undef,
    tap       => 'off',
    reconnect => 1,
    timeout   => 5,
    wait      => 0,
    on_notice => sub { warn "bccn: $_[0]{text}\n" }, ## no critic (RequireCarping)
);

my %CHOICES = (
    format    => [qw(plain full)],
    separator => [qw(/ .)],
    tap       => [qw(off on interface)],
);

# --- a bus ---

sub new {
    my ($class, %given) = @_;
    my %options = (%DEFAULTS, %given);
    _check(\%options);
    my $queue  = $options{queue};
    my %wanted = (
        name      => $options{name},
        separator => $options{separator} eq '/'  ? undef  : '.',
        format    => $options{format} eq 'plain' ? undef  : 'full',
        pack      => $options{pack}              ? 'on'   : undef,
        tap       => $options{tap} eq 'off'      ? undef  : $options{tap},
        queue     => $queue ? join(' ', map {"$_=$queue->{$_}"} sort keys %{$queue}) : undef,
    );
    my $self = bless {
        (map { $_ => $options{$_} } qw(path echo separator reconnect timeout on_notice)),
        wanted        => \%wanted,
        subscriptions => [], # pattern, regex, callback
        watches       => {}, # pattern: callback, told: whether it is wanted
        routes        => {},
        listening     => 0,  # the program wants `!` for itself
        hearing       => 0,  # it wants `!` for replies to requests
        listener      => undef,
        calling       => 0,  # there are callbacks
        requests      => 0,
        buffer        => '',
        pack_limit    => 0,
        closed        => 0,
    }, $class;
    $self->_start;
    local $self->{opening} = 1;
    $self->_ensure(Net::Bccn::Connection::deadline_in($options{wait}));
    return $self;
}

sub _check {
    my ($options) = @_;
    my @wrong = map {"no option '$_'"} grep { !exists $DEFAULTS{$_} } sort keys %{$options};
    for my $name (sort keys %CHOICES) {
        my $value = $options->{$name} // '';
        push @wrong, "$name '$value': one of @{ $CHOICES{$name} }" if !grep { $_ eq $value } @{ $CHOICES{$name} };
    }
    for my $name (qw(timeout wait)) {
        my $value = $options->{$name} // '';
        push @wrong, "$name '$value': must be seconds" if !looks_like_number($value) || !($value >= 0);
    }
    my $queue = $options->{queue} // {};
    push @wrong, 'queue: must be a hash of packets, bytes, policy'
        if ref $queue ne 'HASH' || grep { !/\A(?:packets|bytes|policy)\z/ } keys %{$queue};
    push @wrong, 'on_notice: must be a sub' if ref $options->{on_notice} ne 'CODE';
    Net::Bccn::Error->throw('invalid', $wrong[0]) if @wrong;
    return;
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

sub name {
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

sub heartbeat {
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

sub status {
    my $self = shift;
    return $self->_json('status');
}

sub clients {
    my $self = shift;
    return $self->_pages('clients');
}

sub sources {
    my $self = shift;
    return $self->_pages('sources');
}

sub _pages {
    my ($self, $key) = @_;
    my ($cursor, @rows);
    do {
        my $page = $self->_json($key, $cursor);
        push @rows, @{ $page->{$key} };
        $cursor = $page->{next};
    } while (defined $cursor);
    return @rows;
}

sub _json {
    my ($self, $key, $value) = @_;
    my $text = $self->control($key, $value);
    require JSON::PP; # which takes longer to load than all the rest
    return eval { JSON::PP->new->utf8->decode($text) } // $self->_fail('protocol', "$key: the daemon sent no JSON");
}

sub lost { return $_[0]{lost_ever} }

sub matches {
    my (undef, $pattern, $channel, $separator) = @_;
    return $channel =~ pattern_regex($pattern, $separator // '/');
}

# --- publishing ---

sub publish {
    my ($self, $channel, $payload) = @_;
    $self->_enter if $self->{pid} != $$;
    my $packet = "MSG $channel\0" . ($payload // '');
    utf8::downgrade($packet, 1) or $self->_fail('invalid', 'not bytes: encode the characters first');
    $self->_fail('invalid', 'channel: must not contain NUL') if index($channel, "\0") >= 0;
    return $self->_gather($packet) if $self->{batch};
    if ($self->{ready} && defined CORE::send $self->{ready}, $packet, MSG_NOSIGNAL) {
        $self->{published}++;
    }
    else {
        $self->_transmit($packet, 1);
    }
    return $self->_glance;
}

sub publish_all {
    my ($self, $payload) = @_;
    return $self->publish('!', $payload);
}

sub publish_to {
    my ($self, $target, $payload) = @_;
    return $self->publish("!$target", $payload);
}

sub send_datagram {
    my ($self, $datagram) = @_;
    $self->_enter;
    $self->_fail('invalid', 'not a datagram of BCCN1') if index($datagram, 'BCCN1[') != 0;
    return $self->_gather($datagram) if $self->{batch};
    $self->_transmit($datagram, 1);
    return $self->_glance;
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
    my $limit = $self->{pack_limit} || Net::Bccn::Connection::GATHERED_LIMIT;
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

sub subscribe {
    my ($self, $pattern, $callback) = @_;
    $self->_enter;
    $self->_check_pattern($pattern);
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
        my $is_owed = $request->{left} && $self->_is_open($request);
        $self->_withdraw("UNSUB $pattern", $subscription->{regex}, $last) if $is_owed;
        die $error; ## no critic (RequireCarping)
    }
    return $self->_reroute;
}

sub _check_pattern {
    my ($self, $pattern) = @_;
    $self->_fail('invalid', "pattern '$pattern': must be ASCII without white space") if $pattern =~ /[^!-~]/;
    return;
}

sub unsubscribe {
    my ($self, $pattern) = @_;
    $self->_enter;
    my $subscriptions = $self->{subscriptions};
    my ($last) = grep { $subscriptions->[$_]{pattern} eq $pattern } reverse 0 .. $#{$subscriptions};
    $self->_fail('invalid', "pattern $pattern: not subscribed") if !defined $last;
    my $regex = splice(@{$subscriptions}, $last, 1)->{regex};
    $self->_reroute;
    my $is_said = !$self->_unsay("SUB $pattern");
    my $request = { socket => $self->{socket} }; # a new connection has no such subscription
    if (!eval { $self->_ask($is_said ? "UNSUB $pattern" : undef, 1, $request); 1 }) {
        my $error = $@;
        my $is_owed = $is_said && !$request->{left} && $self->_is_open($request);
        $self->_withdraw("UNSUB $pattern", $regex, $self->{backlog}[-1]) if $is_owed;
        die $error; ## no critic (RequireCarping)
    }
    return $self->_settle;
}

sub listen {
    my ($self, $callback) = @_;
    $self->_enter;
    my ($last, $request) = ($self->{backlog}[-1], {});
    if (!eval { $self->_request('listen', undef, $request); 1 }) {
        my $error = $@;
        $self->_sift($last) if $request->{left} && $self->_is_open($request);
        die $error; ## no critic (RequireCarping)
    }
    @{$self}{qw(listening listener)} = (1, $callback);
    return $self->_reroute;
}

sub watch {
    my ($self, $pattern, $callback) = @_;
    $self->_enter;
    $self->_check_pattern($pattern);
    $self->_fail('invalid', 'to watch needs a sub') if ref $callback ne 'CODE';
    my $request = {};
    if (!eval { $self->_request('watch', $pattern, $request); 1 }) {
        my $error   = $@;
        my $is_owed = $request->{left} && $self->_is_open($request) && !$self->{watches}{$pattern};
        $self->_withdraw("CMSG unwatch\0$pattern") if $is_owed;
        die $error; ## no critic (RequireCarping)
    }
    $self->{watches}{$pattern} = { callback => $callback };
    return $self->_settle;
}

sub unwatch {
    my ($self, $pattern) = @_;
    $self->_enter;
    $self->_check_pattern($pattern);
    my $is_said = delete $self->{watches}{$pattern};
    $is_said &&= !$self->_unsay("CMSG watch\0$pattern");
    my $request = { socket => $self->{socket} };
    if (!eval { $self->_request('unwatch', $pattern, $request); 1 }) {
        my $error = $@;
        $self->_withdraw("CMSG unwatch\0$pattern") if $is_said && !$request->{left} && $self->_is_open($request);
        die $error; ## no critic (RequireCarping)
    }
    delete $self->{news}{$pattern};
    return $self->_settle;
}

sub receive {
    my ($self, $timeout) = @_;
    my ($deadline, $late, $called);
    $self->_enter if $self->{pid} != $$;
    while (1) {
        while (my $message = $self->_next_message) {
            if ($self->{calling} && !$self->_deliver($message)) {
                last if ++$called % Net::Bccn::Connection::READ_LIMIT == 0; # is there time for more?
                next;
            }
            $self->_settle if $self->{unsettled};
            return $message;
        }
        $self->_settle;
        $deadline //= Net::Bccn::Connection::deadline_in($timeout);
        return if $late;
        $self->_await_input($deadline) or return if !@{ $self->{backlog} };
        $late = Net::Bccn::Connection::now() >= $deadline;
    }
}

sub dispatch {
    my $self = shift;
    $self->_enter;
    for (1 .. Net::Bccn::Connection::READ_LIMIT) {
        my $message = $self->_next_message;
        if (!$message) {
            $self->_await_input(Net::Bccn::Connection::now()) or last;
        }
        elsif (!$self->{calling} || $self->_deliver($message)) {
            $self->_notice('unclaimed', 1, 'dispatch dropped a message without a callback, which receive would return');
        }
    }
    return $self->_settle;
}

sub fileno {
    my $self = shift;
    $self->_enter;
    if (!$self->{readiness}) {
        $self->{unsettled} = $self->{readiness} = Net::Bccn::Readiness->new;
        $self->{readiness}->watch(CORE::fileno $self->{socket}) if $self->{socket};
    }
    $self->_settle;
    return $self->{readiness}->fd;
}

# --- callbacks ---

# Calls the callbacks of a message. True: receive returns it, too.
sub _deliver {
    my ($self, $message) = @_;
    return 1 if $self->{wanted}{tap} && $message->{verdict} !~ /\A(?:ok|repaired|retained)\z/; # for no subscription
    my $route = $self->{routes}{ $message->{channel} } // $self->_route($message->{channel});
    my ($wanted, @callbacks) = @{$route};
    $_->($message, $self) for @callbacks;
    return $wanted;
}

# Tells the callbacks of watches what has changed. If one dies, the others are told next time.
sub _tell {
    my $self = shift;
    my $news = $self->{news};
    for my $pattern (sort keys %{$news}) {
        my $wanted = delete $news->{$pattern};
        my $watch  = $self->{watches}{$pattern};
        next if !defined $wanted || !$watch || $wanted eq ($watch->{told} // 'nothing');
        $watch->{told} = $wanted;
        $watch->{callback}->($pattern, $wanted, $self);
    }
    return;
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
# The payload of a request is a token, an LF, and what is asked. A reply goes to !<asker> and begins with the same line
# (clients/PROTOCOL.md, "Request and reply").

sub request {
    my ($self, $channel, $payload, $timeout) = @_;
    my $reply;
    $self->request_many($channel, $payload, sub { ($reply) = @_ }, $timeout, 1);
    return $reply // $self->_fail('timeout', "no reply from $channel in time");
}

sub request_many {
    my ($self, $channel, $payload, $callback, $timeout, $count) = @_;
    my $deadline = Net::Bccn::Connection::deadline_in($timeout // $self->{timeout});
    $self->_enter;
    $self->_in_time($deadline, sub { $self->_ensure });
    my $pending = $self->{pending};
    my $request = { channel => $channel, token => $self->{token} . ++$self->{requests}, replies => [] };
    $self->{sifting} = 1;
    $pending->{ my $number = $self->{requests} } = $request;
    my $said = eval {
        my $left = $count // Net::Bccn::Connection::NEVER;
        $self->_in_time($deadline, sub { $self->_publish_request($request, $payload // '') }) or $left = 0;
        for (; $left > 0; $left--) {
            my $reply = $self->_next_reply($request, $deadline) // last;
            $callback->($reply, $self);
        }
        1;
    };
    my $error = $@;
    delete $pending->{$number};
    $self->_drop_reply($_) for @{ $request->{replies} };
    die $error if !$said; ## no critic (RequireCarping)
    return $self->_settle;
}

# Does what asks the daemon in the time of a request. False: that was over before the answer.
sub _in_time {
    my ($self, $deadline, $code) = @_;
    local $self->{ask_until} = $deadline;
    return 1 if eval { $code->(); 1 };
    my $error   = $@;
    my $is_over = Net::Bccn::Connection::now() >= $deadline && ref $error && eval { $error->code eq 'timeout' };
    die $error if !$is_over; ## no critic (RequireCarping)
    return 0;
}

# Publishes a request, and finds out whether the daemon took it and whether anybody on this host listens.
sub _publish_request {
    my ($self, $request, $payload) = @_;
    if (!$self->{listening} && !$self->{hearing}) {
        $self->{overhears} = 1; # also if it fails
        $self->_ask('CMSG listen');
    }
    elsif ($self->{batch} || $self->{published} > $self->{confirmed}) { # any later rejection is about this request
        $self->_ask;
    }
    @{$self}{qw(hearing requested)} = (1, $request->{channel});
    local @{$self}{qw(rejection rejections)} = (undef, 0);
    $self->publish($request->{channel}, "$request->{token}\n$payload");
    $request->{has_listeners} ||= $self->_listeners($request->{channel}) ne '0'; # or nobody can know
    $self->_fail(@{ $self->{rejection} }) if $self->{rejection};
    @{$request}{qw(questions ask_at)} = (0, Net::Bccn::Connection::now() + ASK_AFTER);
    return;
}

# Waits for a reply, and asks the other hosts meanwhile whether anybody listens. Returns undef at the deadline.
sub _next_reply {
    my ($self, $request, $deadline) = @_;
    while (1) {
        my $due = $request->{has_listeners} || $request->{ask_at} > $deadline ? $deadline : $request->{ask_at};
        my $late;
        while (!@{ $request->{replies} } && !$late) {
            $self->_check_backlog(Net::Bccn::Connection::BACKLOG_LIMIT);
            $late = $self->_read ? Net::Bccn::Connection::now() >= $due : !$self->_await_input($due);
        }
        if (my $reply = shift @{ $request->{replies} }) {
            $self->_drop_reply($reply);
            $reply->{payload} = substr $reply->{payload}, 1 + length $request->{token};
            return $reply;
        }
        return if $due == $deadline;
        next   if $request->{has_listeners};
        my $is_done = $request->{questions}++ >= QUESTIONS;
        my $said    = '0';
        my $ask     = sub { $said = $self->_listeners("$request->{channel} $request->{token}?") };
        $is_done || $self->_in_time($deadline, $ask) or return;
        $self->_fail('nobody', "nobody listens to $request->{channel}") if $said eq '0';
        $request->{has_listeners} ||= $said ne '0 asked';
        $request->{ask_at} = Net::Bccn::Connection::now() + ASK_EVERY;
    }
}

sub _drop_reply {
    my ($self, $reply) = @_;
    $self->{waiting} -= Net::Bccn::Connection::MESSAGE_COST + 2 * length $reply->{payload};
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

sub serve {
    my ($self, $pattern, $handler) = @_;
    $self->_fail('invalid', 'serve needs the format full, which shows who asks') if !$self->{wanted}{format};
    return $self->subscribe($pattern, sub {
        my ($message, $bus) = @_;
        my ($token, $payload) = split_request($message->{payload});
        # A last value was replied to when it was new, and a tap shows what was rejected.
        return if !defined $token || !_is_asker($message->{src}) || $message->{verdict} ne 'ok';
        my $request = { %{$message}, token => $token, payload => $payload };
        my $reply = $handler->($request, $bus);
        return defined $reply && $bus->reply($request, $reply);
    });
}

sub reply {
    my ($self, $request, $payload) = @_;
    my $token = $request->{token} // (split_request($request->{payload}))[0];
    $self->_fail('invalid', 'not a request with a known sender, which needs the format full')
        if !defined $token || !_is_asker($request->{src});
    return $self->publish_to($request->{src}, "$token\n" . ($payload // ''));
}

sub _is_asker {
    my ($src) = @_;
    return defined $src && $src !~ /[?*]/;
}

1;

__END__

=encoding utf8

=head1 NAME

Net::Bccn - LISTEN/NOTIFY between the programs of a network segment: the client of the bccnd bus

=head1 SYNOPSIS

    use Net::Bccn;

    my $bus = Net::Bccn->new;
    $bus->subscribe('sensors/>');
    $bus->publish('sensors/kitchen/temperature', '21.5');
    while (my $message = $bus->receive) {
        print "$message->{channel} $message->{payload}\n";
    }

=head1 DESCRIPTION

A bus is a connection to the daemon of this host. It connects again by itself, with every subscription and setting. A
call waits for that, as for any answer of the daemon, up to the C<timeout> of the bus. Times are seconds and may have
fractions.

Payloads are bytes: encode characters first (L<Encode>). One thread uses a bus; a new thread gets no copy of it.

C<< Net::Bccn->VERSION >> is the version of the library.

=head1 A BUS

=head2 Net::Bccn->new(%options)

Connects to the daemon. Fails with C<unavailable>, C<refused>, C<invalid>, or the daemon's code for an option:

    path       the socket: a path, or @name for an abstract one; by default the usual places:
               $ENV{BCCN_SOCKET}, /run/bccnd/bus.sock, $ENV{XDG_RUNTIME_DIR}/bccnd/bus.sock
    name       the name of the bus; by default the daemon gives <host>/<program>/<pid>
    format     'plain', or 'full': messages have src, seq, peer, time_ns, verdict and datagram
    pack       1: several messages share a packet, both ways: much faster for bursts
    echo       0: own messages that match are not received (1)
    separator  of the tokens in patterns: '/' or '.'
    queue      what may wait in the daemon: { packets => 1000, bytes => 1e6, policy => 'block' },
               or a part of it; policies are drop-oldest, drop-newest, block and disconnect
    tap        'on': every datagram of the segment is received, too; 'interface': and by which
               interface it came; 'off'. One that was not delivered, as its verdict says, goes
               to no callback. Needs the right to tap
    reconnect  0: calls fail with 'unavailable' once the connection has ended (1)
    timeout    how long a call waits for the daemon (5)
    wait       how long to keep trying for the first connection (0)
    on_notice  called with each notice (below); by default notices are warnings

=head2 close

Closes the connection at once; call C<barrier> first to be sure that everything has arrived. Later calls fail with
C<closed>. The end of the last reference closes the bus, too.

=head2 name

Returns the name of the bus, as others see it.

=head2 set_name($name)

Takes another name, and keeps it over reconnections.

=head2 heartbeat($seconds, $text)

Makes the daemon publish the text, if any, on C<< heartbeat/<name> >> every so many seconds. Another call changes the
text, and 0 seconds end the heartbeats. They go on over reconnections.

=head2 status

Returns what the daemon says of itself, its settings and its counters: a hash. Needs the right to observe, as C<clients>
and C<sources> do.

=head2 clients

Returns the clients of the daemon: a list of hashes.

=head2 sources

Returns the sources that the daemon hears on the segment: a list of hashes.

=head2 control($key, $value)

Makes any other control request of the protocol and returns the value of its answer. A new connection does not repeat it.

=head2 lost

Returns how many messages the daemon has dropped in all, because this program read too slowly.

=head1 PUBLISHING

=head2 publish($channel, $payload)

Hands one message to the daemon. The call waits only while the daemon is away or takes no more; after C<unavailable>
and C<timeout> the message was not sent. If the daemon then rejects the message, a notice says so, and the next
C<barrier> fails.

=head2 publish_all($payload)

Publishes to every listening program of the segment.

=head2 publish_to($target, $payload)

Publishes to the program of that name, or to all programs below it.

=head2 send_datagram($datagram)

Passes on a whole datagram of BCCN1 that comes from elsewhere, as C<publish> does. Needs the right to bridge.

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
    interface by which it came; '-' from this host. Only with tap => 'interface'

A message goes once to each callback whose pattern matches, and once to the stream, which C<receive> reads, if a
subscription without a callback matches.

=head2 subscribe($pattern, $callback)

Subscribes, and returns when the subscription is in force; after a failure there is none. The messages go to
C<< $callback->($message, $bus) >>, which C<receive> and C<dispatch> call; without a callback they go to the stream. If
the callback dies, so do those two.

=head2 unsubscribe($pattern)

Ends the last subscription to the pattern, with or without a callback, even if the daemon does not answer.

=head2 listen($callback)

Subscribes to messages to all and to this program, for which there is no pattern. Any subscription brings these, too;
without a callback they go to the stream. The last call counts.

=head2 watch($pattern, $callback)

Has C<receive> and C<dispatch> call C<< $callback->($pattern, $wanted, $bus) >>, with whether anybody else listens to
channels of the pattern, here or on another host: as soon as that is known, and at each change, over reconnections, too.
So a program makes expensive data only while it is wanted. Another call for the pattern replaces the callback, and a call
that fails leaves nothing. Needs the right to publish on all of the pattern.

=head2 unwatch($pattern)

Ends that, even if the daemon does not answer. There need be no such watch.

=head2 receive($timeout)

Returns the next message of the stream, and calls the callbacks meanwhile; C<undef>: none in time. Without a timeout it
waits for ever. While the daemon is away the call waits and does not fail; it connects again within its timeout, or goes
on with that in the next call.

=head2 dispatch

Calls the callbacks of all messages that wait, without waiting for more. Messages of the stream are dropped, and a notice
says so: a program that has both calls C<receive> with 0 until it returns C<undef>.

=head2 fileno

Returns a descriptor for select, poll and epoll loops: when it is readable, call C<dispatch>. It stays the same over
reconnections, but not over fork. It needs a 64-bit Linux on x86, ARM, RISC-V, POWER, LoongArch or s390, and fails
elsewhere with C<unsupported>. See L</EVENT LOOPS>.

=head2 Net::Bccn->matches($pattern, $channel, $separator)

Returns whether a subscription to the pattern brings messages of the channel. The separator is C</> by default.

=head1 REQUEST AND REPLY

The payload of a request is a token, a line feed, and what is asked. A reply goes to the asker's name and begins with
the same line. All clients of the bus follow this convention; these methods add the line and take it off.

=head2 request($channel, $payload, $timeout)

Publishes a request and returns the first reply: a message. Fails with C<timeout> if none comes in time, by default
within the C<timeout> of the bus; and within a third of a second with C<nobody>, if no program of this host or of another
with a daemon would get the request. Other messages wait meanwhile.

=head2 request_many($channel, $payload, $callback, $timeout, $count)

Publishes a request and calls C<< $callback->($reply, $bus) >> for each reply, until there were C<$count> or the time is
over, with or without replies. C<nobody> is an error.

=head2 serve($pattern, $handler)

Subscribes, and replies to each request with what C<< $handler->($request, $bus) >> returns; where that is C<undef>, the
program calls C<reply> later. The payload of C<$request> is what is asked. Other messages are ignored. Needs the format
full, else C<invalid>.

=head2 reply($request, $payload)

Replies to a request: one that a handler got, or a message as C<receive> returns it, with its first line. Needs the
format full, else C<invalid>.

=head1 NOTICES

The bus reports what happens to the connection with C<< on_notice->($notice) >> at the end of a call. A notice is a hash
of C<kind>, C<count>, and C<text>, a line for people. There may be more kinds than these:

    lost          the daemon dropped `count` messages: this program read too slowly
    rejected      the daemon rejected a message `count` times, or a setting on a new connection;
                  `code` says why
    revoked       the daemon took back a right, and what rested on it has ended
    closing       the daemon closes the connection; the text says why
    disconnected  the connection has ended; `count` published messages may not have been taken
    reconnected   there is a connection again, with every subscription in force
    unclaimed     dispatch dropped `count` messages of the stream

=head1 ERRORS

Methods die with a Net::Bccn::Error. Its C<code> is a word for programs, and its C<text> a line for people; as a string
it is the line and the place of the call.

    if (!eval { $bus->barrier; 1 }) {
        die $@ if !ref $@ || $@->code ne 'too-large';
    }

    invalid      an argument that cannot be sent at all
    unavailable  no daemon, or it went away and did not come back in time
    unconfirmed  the connection broke since the last barrier: messages may be missing
    timeout      the daemon does not answer or takes no more, or no reply came
    nobody       nobody listens to this request
    backlog      too many messages wait: receive them before asking
    protocol     the daemon sent a packet that is not of this protocol: the connection has ended
    closed       the bus is closed
    unsupported  fileno does not know this machine

These are the daemon's. There may be more of them than this version knows:

    bad-channel, bad-pattern, bad-name, bad-value, bad-datagram
                    what is wrong with what was sent
    too-large       the message does not fit a datagram, or a packet
    refused         the program has no right to this, or not to the socket
    name-taken      another client of this host has the name
    not-subscribed  the daemon knows of no such subscription
    limit           too many subscriptions or watches, or names taken too fast
    unknown-key     the daemon is older than the request

=head1 EVENT LOOPS

Any loop waits for the bus that waits for a descriptor. Messages that a call has read meanwhile make it readable, too.

With L<IO::Select>, which comes with Perl:

    use IO::Select;

    $bus->subscribe('loop/>', sub { print "$_[0]{payload}\n" });
    $bus->publish('loop/x', 'selected');
    my $inputs = IO::Select->new($bus->fileno);
    $bus->dispatch if $inputs->can_read; # and so on, in a loop

With L<AnyEvent>:

    use AnyEvent;

    my $done = AnyEvent->condvar;
    $bus->subscribe('loop/>', sub { $done->send($_[0]{payload}) });
    my $watcher = AnyEvent->io(fh => $bus->fileno, poll => 'r', cb => sub { $bus->dispatch });
    my $timer   = AnyEvent->timer(after => 0.1, cb => sub { $bus->publish('loop/x', 'any event') });
    print $done->recv, "\n";

With L<IO::Async>, which wants a handle and not a number:

    use IO::Async::Loop;

    my $loop = IO::Async::Loop->new;
    open my $handle, '<&', $bus->fileno or die "no handle: $!";
    $loop->watch_io(handle => $handle, on_read_ready => sub { $bus->dispatch });
    $loop->watch_time(after => 0.1, code => sub { $bus->publish('loop/x', 'asynchronous') });
    $bus->subscribe('loop/>', sub { $loop->stop($_[0]{payload}) });
    print $loop->run, "\n";

A callback may call the bus. A call that waits, such as C<subscribe>, C<barrier> or C<request>, holds up the loop until
the daemon has answered.

=head1 FORK

A child may use the bus of its parent. The first call opens a connection of its own, with the same subscriptions, under
the name C<< <parent's name>/<pid> >>. Or the child opens another bus. Messages that waited for the parent stay with the
parent. The daemon gives the sequence numbers; there is no method to get or set them.

=head1 SIGNALS

A call that waits goes on waiting after a signal handler has run; a handler that dies ends it. The bus raises no
SIGPIPE.

=head1 LICENSE

MIT; see the file LICENSE.

=cut
