module bccn

go 1.22
