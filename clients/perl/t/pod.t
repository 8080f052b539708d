# Tests that the manual has no POD errors and a heading for every public method.
use strict;
use warnings;

use FindBin;
use Pod::Checker ();
use Test::More;

use Net::Bccn;

my $file = "$FindBin::Bin/../lib/Net/Bccn.pm";
open my $nowhere, '>', \my $complaints or die;
my $checker = Pod::Checker->new(-warnings => 1);
$checker->parse_from_file($file, $nowhere);
is($checker->num_errors + $checker->num_warnings, 0, 'no complaints') or diag $complaints;

open my $source, '<', $file or die "$file: $!";
my ($code, $pod) = split /^__END__$/m, do { local $/ = undef; <$source> };
my %methods = map { $_ => 1 } $code =~ /^sub ([a-z]\w*)/mg;
my @silent = grep { $pod !~ /^=head2 .*\b$_\b/m } sort keys %methods;
is_deeply(\@silent, [], 'every method is in the manual');
cmp_ok(scalar keys %methods, '>', 20, 'there are methods');

done_testing;
