"""Components that Streamlit lacks, each a folder with its scripts and style."""
