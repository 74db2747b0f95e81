#!/bin/sh
# Build the folder that a free host serves: the pages without PyTorch, and recorded runs that nobody can change.
#   deploy/demo/make.sh FOLDER      in the repository, with its virtual environment active; it trains for a few minutes
# To show your own runs, first copy your lab's folder to FOLDER/home. The script deletes checkpoints and base models
# from that copy.
# docs/sharing.md, "Try it without installing", says where to upload the folder.
set -eu
target=$1
code=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$target"
target=$(cd "$target" && pwd)
cd "$code"

export RL_LAB_HOME="$target/home"
if [ ! -e "$RL_LAB_HOME" ]; then
    lab="python -m labcore"
    $lab run --algorithm grpo --task sort --steps 150 --json > /dev/null
    $lab run --algorithm ppo --task sort --steps 100 --json > /dev/null
    $lab run --preset no_clip --json > /dev/null
    $lab run --preset clip --json > /dev/null
    $lab run --algorithm dpo --task sort --steps 100 --json > /dev/null
    $lab run --kind maze --algorithm q_learning --steps 200 --json > /dev/null
    $lab run --kind cartpole --algorithm ppo --steps 60 --json > /dev/null
fi
rm -rf "$RL_LAB_HOME"/*/checkpoints "$RL_LAB_HOME"/*/start "$RL_LAB_HOME"/*/worker.log "$RL_LAB_HOME"/*/versions.json \
    "$RL_LAB_HOME/base" "$RL_LAB_HOME/supervisor.log" "$RL_LAB_HOME"/lesson-drafts.json*
python -c "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); \
c.execute('UPDATE lab_runs SET host = NULL, pid = NULL'); c.commit(); c.execute('PRAGMA journal_mode = DELETE'); \
c.execute('VACUUM')" "$RL_LAB_HOME/lab.db"

cp -R app labcore pages LICENSE "$target"
rm -rf "$target/labcore/bases"/*/ "$target/app/static"/*.js
find "$target" -name __pycache__ -prune -exec rm -rf {} +
# Leave out the packages that only training and sampling need, so that the server needs little memory.
grep -E '^[a-z]' requirements.txt | grep -v -E '^(torch|transformers|accelerate|peft|pytest|math-verify|tokenizers)==' \
    | grep -v -E '^(latex2sympy2_extended|antlr4-python3-runtime|huggingface_hub)==' > "$target/requirements.txt"
cp deploy/demo/Dockerfile deploy/demo/README.md "$target"
# Accept any host name, because the host's proxy chooses it, and limit uploads to 1 MB.
sed -e 's/^address = .*/address = "0.0.0.0"/' -e 's/^allowedHosts = .*/allowedHosts = []/' \
    -e 's/^maxUploadSize = .*/maxUploadSize = 1\
disconnectedSessionTTL = 30/' \
    app/.streamlit/config.toml > "$target/app/.streamlit/config.toml"
du -sh "$target"
