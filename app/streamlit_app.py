"""Entry of the chat page: `firstfault chat` runs it, or `streamlit run app/streamlit_app.py`."""

from firstfault.ui.page import main

main()
