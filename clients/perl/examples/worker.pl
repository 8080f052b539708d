#!/usr/bin/perl
# A worker: answers requests on jobs/upper with the text in capitals, tells how many it did on its heartbeat, and stops
# when somebody sends it "stop".
#
#     perl -Ilib examples/worker.pl &
#     bccn req jobs/upper 'hello there'
use strict;
use warnings;

use IO::Select;

use Bccn;

my ($done, $told, $stopped) = (0, 0, 0);
my $bus = Bccn->new(address => $ARGV[0], format => 'full', wait => 10); # full: to know whom to answer

$bus->serve('jobs/upper', sub {
    my ($text) = @_;
    $done++;
    return uc $text;
});
$bus->listen('!', sub {
    my ($message) = @_;
    $stopped = 1 if $message->{payload} eq 'stop';
});
$bus->heartbeat_start(5, 'ready');
$| = 1;
printf "%s is ready\n", $bus->get_name;

# Any loop around select, poll or epoll will do; other descriptors go in there, too.
my $inputs = IO::Select->new($bus->fileno);
while (!$stopped) {
    $bus->dispatch if $inputs->can_read;
    $bus->heartbeat_start(5, ($told = $done) . ' done') if $told < $done;
}
$bus->barrier; # nothing is left on its way
print "$done done\n";
