"""The tables in the normal form that the built-in questions need."""

from kopitiam.questions.question_set import QuestionSet

TABLES = QuestionSet.of_catalog().tables
