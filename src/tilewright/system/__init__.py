"""The system below the compiler: files, folders, locks, and what is installed beside it."""
