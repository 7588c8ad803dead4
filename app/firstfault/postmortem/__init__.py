"""What goes on file after an incident? One report object; Markdown, HTML, docx and PDF from it."""
