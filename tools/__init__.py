"""Command-line helpers of the repository; not part of the installed package."""
