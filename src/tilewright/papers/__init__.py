"""What papers do otherwise than this compiler, kept runnable so that both can be compared."""
