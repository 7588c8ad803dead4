"""Entry of the chat page: `firstfault chat` runs it, or `streamlit run app/streamlit_app.py`.

The server imports this file for the application with its gate; Streamlit runs it for every drawing.
"""

if __name__ == "__main__":
    from firstfault.ui.page import main

    main()
else:
    from starlette.middleware import Middleware
    from streamlit.starlette import App

    from firstfault.ui.gate import Gate, set_safe_options

    set_safe_options()
    app = App(__file__, middleware=[Middleware(Gate)])
