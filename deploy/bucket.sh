#!/bin/sh
# The lab's bucket, the user who writes to it, and the one who only reads it. May be run again.
set -eu
until mc ready store; do sleep 1; done
mc mb --ignore-existing store/lab
mc admin user add store lab "$LAB_KEY"
mc admin user add store lab_reader "$READER_KEY"
mc admin policy attach store readwrite --user lab || true  # it says so where it is attached already
mc admin policy create store lab_reader /deploy/bucket-reader.json
mc admin policy attach store lab_reader --user lab_reader || true
