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
