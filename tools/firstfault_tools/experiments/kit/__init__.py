"""What does a training script take along for a component test? One file that users copy beside it."""
