# The driver of the Perl client for the conformance suite (clients/CONFORMANCE.md).
use strict;
use warnings;

use IO::Select;
use JSON::PP qw(encode_json);
use Time::HiRes qw(setitimer time ITIMER_REAL);

use Net::Bccn;

# Seconds between looks at events other than messages.
use constant SLICE => 0.02;

my (%options, $path, $bus, @events, $held, @notices, $reports, $last);

# The least and most words of each command, and whether it needs an open client.
my %commands = (
    format      => [ 1, 1, 0, sub { $options{format}    = $_[0]; return } ],
    pack        => [ 1, 1, 0, sub { $options{pack}      = $_[0] eq 'on'; return } ],
    separator   => [ 1, 1, 0, sub { $options{separator} = $_[0]; return } ],
    queue       => [ 1, 3, 0, sub { $options{queue}     = { map { split /=/, $_, 2 } @_ }; return } ],
    timeout     => [ 1, 1, 0, sub { $options{timeout}   = $_[0]; return } ],
    echo        => [ 1, 1, 0, sub { $options{echo}      = $_[0] eq 'on'; return } ],
    reconnect   => [ 1, 1, 0, sub { $options{reconnect} = $_[0] eq 'on'; return } ],
    tap         => [ 1, 1, 0, sub { $options{tap}       = $_[0]; return } ],
    wait        => [ 1, 1, 0, sub { $options{wait}      = $_[0]; return } ],
    as          => [ 1, 1, 0, sub { $options{name}      = $_[0]; return } ],
    report      => [ 1, 1, 0, sub { $reports            = $_[0] eq 'on'; return } ],
    matches     => [ 3, 3, 0, sub { return Net::Bccn->matches(@_) ? 'yes' : 'no' } ],
    control     => [ 1, 2, 1, sub { return $bus->control(@_) } ],
    notices     => [ 0, 0, 1, sub { return splice @notices } ],
    dispatch    => [ 0, 0, 1, sub { return $bus->dispatch } ],
    poll        => [ 1, 1, 1, \&poll ],
    await       => [ 0, 0, 1, sub { return 'msg', fields_of($bus->receive) } ],
    origin      => [ 0, 0, 1, sub { return grep {defined} @{$last}{qw(time_ns datagram interface)} } ],
    ask         => [ 2, 2, 1, sub { return $bus->request(@_)->{payload} } ],
    open        => [ 0, 1, 0, \&open_bus ],
    close       => [ 0, 0, 0, \&close_bus ],
    version     => [ 0, 0, 0, sub { return Net::Bccn->VERSION } ],
    whoami      => [ 0, 0, 1, sub { return $bus->name } ],
    name        => [ 1, 1, 1, sub { $bus->set_name($_[0]); return $bus->name } ],
    sub         => [ 1, 1, 1, sub { return $bus->subscribe(@_) } ],
    cancel      => [ 2, 2, 1, \&cancel ],
    callback    => [ 1, 1, 1, sub { return $bus->subscribe($_[0], event_of('call')) } ],
    stream      => [ 1, 1, 0, \&unsupported ],
    take        => [ 2, 2, 0, \&unsupported ],
    unsub       => [ 1, 1, 1, sub { return $bus->unsubscribe(@_) } ],
    listen      => [ 0, 1, 1, sub { return $bus->listen(@_ ? event_of(@_) : ()) } ],
    watch       => [ 1, 1, 1, sub { return $bus->watch($_[0], \&told) } ],
    unwatch     => [ 1, 1, 1, sub { return $bus->unwatch(@_) } ],
    lost        => [ 0, 0, 1, sub { return $bus->lost } ],
    status      => [ 0, 0, 1, sub { return encode_json($bus->status) } ],
    clients     => [ 0, 0, 1, sub { return encode_json([ $bus->clients ]) } ],
    sources     => [ 0, 0, 1, sub { return encode_json([ $bus->sources ]) } ],
    datagram    => [ 1, 1, 1, sub { return $bus->send_datagram(@_) } ],
    heartbeat   => [ 1, 2, 1, sub { return $bus->heartbeat(@_) } ],
    pub         => [ 2, 2, 1, sub { return $bus->publish(@_) } ],
    'pub-to'    => [ 2, 2, 1, sub { return $bus->publish_to(@_) } ],
    'pub-all'   => [ 1, 1, 1, sub { return $bus->publish_all(@_) } ],
    flood       => [ 2, 3, 1, \&flood ],
    barrier     => [ 0, 0, 1, sub { return $bus->barrier } ],
    recv        => [ 1, 1, 1, \&receive ],
    count       => [ 2, 2, 1, \&count ],
    request     => [ 3, 4, 1, \&request ],
    serve       => [ 2, 4, 1, \&serve ],
    fork        => [ 1, 1, 1, \&fork_with ],
);

# --- lines, unbuffered: a child goes on reading where its parent stopped, and the other way round ---

sub read_line {
    my $line = '';
    while (sysread STDIN, my $byte, 1) {
        return $line if $byte eq "\n";
        $line .= $byte;
    }
    return;
}

sub decoded {
    my ($word) = @_;
    return '' if $word eq '%';
    $word =~ s/%([0-9A-F]{2})/chr hex $1/ge;
    return $word;
}

sub say_words {
    my @words = map { $_ eq '' ? '%' : s/([^!-\$&-~])/sprintf '%%%02X', ord $1/ger } @_;
    syswrite STDOUT, "@words\n";
    return;
}

# --- commands ---

sub connect_bus {
    my $note = sub {
        my ($notice) = @_;
        push @notices, @{$notice}{qw(kind count)}, $notice->{code} // '';
        push @events, [ $notice->{kind} ] if $notice->{kind} =~ /connected\z/;
    };
    $bus = Net::Bccn->new(path => $path, %options, $reports ? () : (on_notice => $note));
    return;
}

sub open_bus {
    ($path) = @_;
    close_bus();
    connect_bus();
    return $bus->name;
}

sub close_bus {
    $bus->close if $bus;
    undef $bus;
    undef $held;
    @events = @notices = ();
    return;
}

# Subscribes, and dies of a signal meanwhile.
sub cancel {
    my ($pattern, $seconds) = @_;
    local $SIG{ALRM} = sub { Net::Bccn::Error->throw('cancelled', 'the call was cancelled') };
    setitimer ITIMER_REAL, $seconds;
    my $said  = eval { $bus->subscribe($pattern); 1 };
    my $error = $@;
    setitimer ITIMER_REAL, 0;
    die $error if !$said; ## no critic (RequireCarping)
    return;
}

# A callback: what it is called with is an event, which begins with the word.
sub event_of {
    my ($word) = @_;
    return sub {
        my ($message) = @_;
        push @events, [ 'lost', $message->{lost} ] if $message->{lost};
        push @events, [ $word, fields_of($message) ];
    };
}

sub told {
    my ($pattern, $wanted) = @_;
    push @events, [ 'wanted', $pattern, $wanted ? 'yes' : 'no' ];
    return;
}

sub poll {
    my $descriptor = $bus->fileno;
    return $descriptor, IO::Select->new($descriptor)->can_read($_[0]) ? 'yes' : 'no';
}

sub unsupported { return Net::Bccn::Error->throw('unsupported', 'a subscription is no value in Perl') }

sub flood {
    my ($channel, $count, $size) = (@_, 0);
    $bus->batch(
        sub {
            for my $number (1 .. $count) {
                my $missing = $size - length $number;
                $bus->publish($channel, $missing > 0 ? $number . '.' x $missing : $number);
            }
        }
    );
    return;
}

sub receive {
    my $end = time + $_[0];
    while (1) {
        return @{ shift @events } if @events;
        my $left = $end - time;
        my $message = $held // $bus->receive($left < 0 ? 0 : $left < SLICE ? $left : SLICE);
        return words_of($message) if $message;
        return 'timeout' if $left <= 0 && !@events;
    }
}

sub words_of {
    ($held) = @_;
    if (my $lost = $held->{lost}) {
        $held->{lost} = 0;
        return 'lost', $lost;
    }
    my $message = $held;
    undef $held;
    return 'msg', fields_of($message);
}

sub fields_of {
    my ($message) = @_;
    $last = $message;
    return @{$message}{qw(channel payload)}, $message->{peer} ? @{$message}{qw(src seq peer verdict)} : ();
}

sub count {
    my ($most, $seconds) = @_;
    my ($received, $lost, $last) = (0, 0, '');
    while ($received < $most and my $message = $bus->receive($seconds)) {
        $received++;
        $lost += $message->{lost};
        $last = $message->{payload};
    }
    @events = ();
    return $received, $lost, $last;
}

sub request {
    my ($channel, $payload, $seconds, $most) = @_;
    return $bus->request($channel, $payload, $seconds)->{payload} if !defined $most;
    my @replies;
    $bus->request_many($channel, $payload, sub { push @replies, $_[0]{payload} }, $seconds, $most);
    return @replies;
}

sub serve {
    my ($most, $seconds, $pattern, $is_later) = @_;
    my $served = 0;
    if (defined $pattern) {
        my @later; # is replied to when its handler has returned
        my $reply = sub { $served++; return "re:$_[0]{payload}" };
        $bus->serve($pattern, $is_later ? sub { push @later, $_[0]; return } : $reply);
        my $inputs = IO::Select->new($bus->fileno);
        while ($served < $most && $inputs->can_read($seconds)) {
            $bus->dispatch;
            $bus->reply($_, $reply->($_)) for splice @later;
        }
        return $served;
    }
    while ($served < $most and my $message = $bus->receive($seconds)) {
        my (undef, $payload) = split /\n/, $message->{payload}, 2;
        my $replied = eval { $bus->reply($message, "re:$payload"); 1 };
        die $@ if !$replied && $@->code ne 'invalid'; ## no critic (RequireCarping)
        $served += !!$replied; # what is invalid is no request
    }
    return $served;
}

# Forks. The child answers the command and goes on with the script; the parent answers the exit of the child.
sub fork_with {
    my ($pattern) = @_;
    my $child = fork // die "fork: $!\n";
    if ($child) {
        waitpid $child, 0;
        return $? >> 8 || $? & 127 && 128 + ($? & 127);
    }
    if ($pattern eq 'A') {
        close_bus();
        connect_bus();
    }
    return $$, $bus->name;
}

sub obey {
    my ($name, @words) = @_;
    my $command = $commands{ $name // '' } or return qw(error usage), 'no such command';
    my ($least, $most, $needs_bus, $code) = @{$command};
    return qw(error usage), 'wrong number of arguments' if @words < $least || @words > $most;
    return qw(error closed), 'there is no open client' if $needs_bus && !$bus;
    my @answer;
    return 'ok', @answer if eval { @answer = grep {defined} $code->(@words); 1 };
    die $@ if !ref $@;
    return 'error', $@->code, $@->text;
}

while (defined(my $line = read_line())) {
    my ($name, @words) = split / /, $line;
    last if ($name // '') eq 'exit';
    say_words(obey($name, map { decoded($_) } @words));
}
