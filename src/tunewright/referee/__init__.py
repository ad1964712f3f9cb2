"""A referee for kernels that others wrote: is a candidate right, and really faster than a baseline?"""

from tunewright.referee.messages import ChildLimits
from tunewright.referee.referee import Referee
from tunewright.referee.submissions import Submission, load_submission
from tunewright.referee.task import Task, TaskError
from tunewright.referee.task_files import load_task
from tunewright.referee.transcripts import RefereeTranscript, read_transcript, write_transcript
from tunewright.referee.verdict import RefereeVerdict

__all__ = [
    "ChildLimits",
    "Referee",
    "RefereeTranscript",
    "RefereeVerdict",
    "Submission",
    "Task",
    "TaskError",
    "load_submission",
    "load_task",
    "read_transcript",
    "write_transcript",
]
