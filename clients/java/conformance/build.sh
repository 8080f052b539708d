#!/bin/sh
# Builds the library, the driver and the worker into build/, with a JDK alone. An archive of loaded classes makes a JVM
# start in half the time.
set -eu
cd "$(dirname "$0")/.."
jar=build/bccn.jar
if [ -e build/driver.jsa ] && [ -z "$(find src/main conformance examples -newer build/driver.jsa)" ]; then
    exit 0
fi
rm -rf build/main build/programs "$jar" build/programs.jar build/driver.jsa
mkdir -p build/main build/programs
javac -Xlint:all -Werror -Xdoclint:all/protected --release 17 -d build/main $(find src/main -name '*.java')
jar --create --file "$jar" -C build/main .
javac -Xlint:all -Werror --release 17 -cp "$jar" -d build/programs conformance/*.java examples/*.java
jar --create --file build/programs.jar -C build/programs .
printf 'version\nmatches a b /\nopen unix:/nonexistent\nrecv 1\n' |
    java -XX:ArchiveClassesAtExit=build/driver.jsa -XX:+UseSerialGC -cp "$jar:build/programs.jar" Driver \
    >build/archive.log 2>&1
