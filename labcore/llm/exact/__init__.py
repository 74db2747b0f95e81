"""What is true of a policy on a problem small enough to write down every completion: no samples, no estimates."""
