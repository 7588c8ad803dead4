"""Why did the processes of a job not start or not meet?"""
