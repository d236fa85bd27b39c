"""What Tilewright is measured by."""
