"""Who else does it: a file for each library and each limit, read by every interpreter."""
