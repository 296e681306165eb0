"""What a user's function makes of each batch: in the thread that gathers, or in processes of their own."""
