"""Files as other tools write them."""

TRL = b"""loss,grad_norm,learning_rate,num_tokens,completions/mean_length,completions/clipped_ratio,reward,kl,\
clip_ratio/region_mean,rewards/fmt/mean,epoch,step,train_runtime
0.1,1.5,1e-05,1000,7.5,0.25,0.2,0.001,0.0,0.3,0.1,10,
-0.2,1.25,9e-06,2000,7.0,0.0,0.4,0.002,0.1,0.4,0.2,20,
,,,,,,,,,,0.2,20,61.5
"""
WANDB = b"""_step,_runtime,_timestamp,train/global_step,train/reward,train/kl,eval/loss,name
0,1.5,1.7e9,1,0.25,,,"a, ""b"" c"
1,2.5,1.7e9,2,0.5,0.25,,x
2,2.75,1.7e9,2,,0.75,0.1,x
3,3.5,1.7e9,,,,,x
"""
CHART = b"""\xef\xbb\xbf"Step","run a - train/reward","run a - train/reward__MIN","run a - train/reward__MAX",\
"b - train/reward"
"1","0.5","0.5","0.5",""
"3","0.75","0.75","0.75","0.125"
"""
SB3 = b"""time/iterations;rollout/ep_rew_mean;time/total_timesteps;train/n_updates;time/time_elapsed;train/clip_fraction
1;20.5;2048;;3;
2;31;4096;10;6;0.125
"""

HASH = b"# exported by tool X\nstep,reward\n1,0.25\n2,0.5\n"
SAVETXT = b"# step,reward\n1.0,0.25\n2.0,0.5\n"
SEP = b"sep=;\r\nstep;reward\r\n1;0.25\r\n2;0.5\r\n"
TRAINER_STATE = b"""{"best_metric": null, "epoch": 0.2, "global_step": 2, "log_history": [
  {"loss": 0.0, "reward": 0.25, "kl": 0.0, "step": 1}, {"loss": 0.001, "reward": 0.5, "kl": 0.001, "step": 2}],
 "max_steps": 2}"""
LOG_HISTORY = b'[{"step": 1, "reward": 0.25}, {"step": 2, "reward": 0.5}]'
JSONL = b'{"step": 1, "reward": 0.25}\n\n{"step": 2, "reward": 0.5}\n'
NESTED = b'{"step": 1, "train": {"reward": 0.25}}\n{"step": 2, "train": {"reward": 0.5}}\n'
VERL = b"""{"step": 1, "data": {"critic/rewards/mean": 0.25, "actor/pg_loss": 0.5, "training/global_step": 1}}
{"step": 2, "data": {"critic/rewards/mean": 0.5, "actor/pg_loss": null, "training/global_step": 2}}
"""
VERL_WANDB = b"""training/global_step,grpo_run - critic/rewards/mean,grpo_run - critic/rewards/mean__MIN
1,0.25,0.1
2,0.5,0.2
"""
TENSORBOARD = b"Wall time,Step,Value\n1700000000.5,1,0.25\n1700000002.5,2,0.5\n"
SB3_EVAL = b"""eval/mean_ep_length,eval/mean_reward,time/total_timesteps,rollout/ep_rew_mean,time/iterations
,,2048,22.0,1
190.0,200.0,3000,,
,,4096,26.0,2
"""
SB3_DQN = b"""rollout/ep_rew_mean,rollout/exploration_rate,time/episodes,time/total_timesteps,train/loss
20,0.95,4,80,
22,0.9,8,170,0.01
"""
MONITOR = b'#{"t_start": 1700000000.0, "env_id": "CartPole-v1"}\nr,l,t\n22.0,22,0.5\n30.0,30,0.9\n'
CLEANRL = b"global_step,charts/episodic_return,losses/entropy\n512,20,0.5\n1024,30,0.25\n"
TWO_RUNS = b"step,reward,kl\n" + b"".join(
    b"%d,%.2f,0.1\n" % (step, reward) for reward in (0.25, 0.75) for step in range(1, 11))
SAME_NAME = b"Step,grpo - train/reward,grpo - train/reward\n1,0.25,0.75\n2,0.5,1.0\n"
NAN_LOSS = b"step,reward,loss,grad_norm\n" + b"".join(
    b"%d,0.5,%s\n" % (step, b"0.1,1.0" if step < 21 else b"nan,inf") for step in range(1, 51))
