"""What every process needs: settings and logs."""
