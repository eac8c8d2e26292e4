// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/trace.h"

#include <criterion/criterion.h>
#include <fmt/format.h>
#include <string>
#include <utility>

using namespace swell;
using namespace swell::sim;

namespace {

/// Jobs as "submit gpus duration account", from the first submission on, and what was left out.
std::string told(const char* text) {
  const auto trace = trace_from_text(text);
  if (!trace) return trace.error().message();
  std::string all;
  for (const TraceJob& job : trace->jobs)
    all += fmt::format("{:g} {:g} {:g} {}; ", job.submit_s - trace->jobs.front().submit_s, job.gpus,
                       job.duration_s, job.account);
  return all + trace->left_out_text();
}

}  // namespace

Test(trace, is_read_by_its_columns_names) {
  const auto trace =
      trace_from_csv("job_id,duration_s,vc,submit_s,num_gpus\r\na,60.5,x,10,2\r\nb,1,y,5,1\r\n");
  cr_assert(trace.ok());
  cr_assert_eq(trace->jobs.size(), 2u);
  cr_assert_eq(trace->jobs[0].submit_s, 5, "sorted");
  cr_assert_eq(trace->jobs[1].gpus, 2);
  cr_assert_eq(trace->jobs[1].duration_s, 60.5);
}

Test(trace, is_read_as_other_programs_write_it) {
  for (const char* text :
       {"\xef\xbb\xbfsubmit_s,num_gpus,duration_s\n0,4,60\n",
        "submit_s, num_gpus, duration_s\n0, 4, 60\n",
        "name,submit_s,num_gpus,duration_s\n\"a, \"\"b\",0,4,60\n",
        "submit_s,num_gpus,duration_s\r0,4,60\r", "submit_s;num_gpus;duration_s\n0;4;60\n",
        "\n\nSUBMIT_S\tnum_gpus\tduration_s\n\n0\t4\t60",
        "\"submit_s\",\"num_gpus\",\"duration_s\"\r\n\"0\",\"4\",\"60\"\r\n"}) {
    const auto trace = trace_from_csv(text);
    cr_assert(trace.ok(), "%s: %s", text, trace.ok() ? "" : trace.error().message().c_str());
    cr_assert_eq(trace->jobs.size(), 1u, "%s", text);
    cr_assert_eq(trace->jobs[0].gpus, 4, "%s", text);
    cr_assert_eq(trace->jobs[0].duration_s, 60, "%s", text);
  }
}

Test(trace, sacct_is_read_by_its_fields_names) {
  const auto trace = trace_from_csv(
      "JobID|JobName|Submit|ElapsedRaw|Elapsed|AllocTRES|State\n"
      "7|say \"hi|2026-11-20T00:01:00|3600|01:00:00|billing=8,cpu=8,gres/gpu:h100=4,gres/gpu=4,node=1|COMPLETED\n"
      "7.batch|batch|2026-11-20T00:01:00|3600|01:00:00|cpu=8,gres/gpu=4|COMPLETED\n"
      "8_1|a|2026-11-20T00:00:00|60|00:01:00|cpu=1,gres/gpu=2|FAILED\n"
      "9|cpu|2026-11-20T00:00:00|60|00:01:00|cpu=1|COMPLETED\n"
      "10|now|2026-11-20T00:00:00|60|00:01:00|cpu=1,gres/gpu=2|RUNNING\n"
      "11|gone|2026-11-20T00:00:00|0|00:00:00||CANCELLED by 1000\n");
  cr_assert(trace.ok(), "%s", trace.error().message().c_str());
  cr_assert_eq(trace->jobs.size(), 2u);
  cr_assert_eq(trace->jobs[0].gpus, 2);
  cr_assert_eq(trace->jobs[1].gpus, 4);
  cr_assert_eq(trace->jobs[1].submit_s - trace->jobs[0].submit_s, 60);
  cr_assert_eq(trace->jobs[1].duration_s, 3600);
  cr_assert_eq(trace->left_out_text(),
               std::string("1 ask for no GPU, 1 did not run, 1 wait or run still"));
  const auto elapsed = trace_from_csv("Submit|Elapsed|ReqTRES\n1767225600|1-00:00:01|gres/gpu=1\n");
  cr_assert_eq(elapsed->jobs.at(0).duration_s, 86401);
  cr_assert(trace_from_csv("Submit|ElapsedRaw\n1|2\n")
                .error()
                .message()
                .starts_with("line 1 has no field \"AllocTRES\""));
}

Test(trace, sacct_json_is_read_as_each_version_writes_it) {
  cr_assert_eq(
      told("\xef\xbb\xbf {\"jobs\":["
           "{\"account\":\"a\",\"state\":{\"current\":[\"COMPLETED\"]},"
           "\"time\":{\"submission\":1767225660,\"elapsed\":60},\"tres\":{\"allocated\":["
           "{\"type\":\"gres\",\"name\":\"gpu\",\"count\":4},"
           "{\"type\":\"gres\",\"name\":\"gpu:h100\",\"count\":4}]}},"
           "{\"account\":\"b\",\"state\":{\"current\":\"TIMEOUT\"},"
           "\"time\":{\"submission\":{\"set\":true,\"infinite\":false,\"number\":1767225600},"
           "\"elapsed\":{\"set\":true,\"number\":30}},\"tres\":{\"allocated\":[],\"requested\":["
           "{\"type\":\"gres\",\"name\":\"gpu:a100\",\"count\":2}]}},"
           "{\"state\":{\"current\":[\"RUNNING\"]},\"time\":{\"submission\":1,\"elapsed\":9},"
           "\"tres\":{}},"
           "{\"state\":{\"current\":[\"COMPLETED\"]},\"time\":{\"submission\":1,\"elapsed\":9},"
           "\"tres\":{\"allocated\":[{\"type\":\"cpu\",\"name\":\"\",\"count\":8}]}}]}"),
      std::string("0 2 30 b; 60 4 60 a; 1 ask for no GPU, 1 wait or run still"));
  cr_assert_neq(told("{\"jobs\":[{}]}").find("job 1 of the file: it has no time.submission"),
                std::string::npos);
  cr_assert_neq(told("{\"a\":1}").find("sacct --json"), std::string::npos);
}

Test(trace, published_ones_are_read_by_their_own_columns) {
  const std::pair<const char*, const char*> traces[] = {
      // Philly, cluster_job_log
      {R"([{"status":"Pass","vc":"ee","jobid":"j1","attempts":[{"start_time":"2017-10-09 07:02:20",
          "end_time":"2017-10-09 07:02:30","detail":[{"ip":"m1","gpus":["gpu0"]}]},{"start_time":
          "2017-10-09 07:03:00","end_time":"2017-10-09 07:04:00","detail":[{"ip":"m1","gpus":["gpu0",
          "gpu1"]},{"ip":"m2","gpus":["gpu0"]}]}],"submitted_time":"2017-10-09 07:02:13","user":"u"},
          {"status":"Killed","vc":"ee","jobid":"j2","attempts":[],
          "submitted_time":"2017-10-09 07:02:13"}])",
       "0 3 70 ee; 1 did not run"},
      // Helios, cluster_log.csv
      {"job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
       "1,u1,vcA,4,16,1,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:00:11,2020-04-01 00:01:11,60,1\n"
       "2,u1,vcA,0,16,1,FAILED,2020-04-01 00:00:10,2020-04-01 00:00:11,2020-04-01 00:01:11,60,1\n"
       "3,u1,vcB,8,16,1,CANCELLED,2020-04-01 00:00:40,,,0,1\n",
       "0 4 60 vcA; 1 ask for no GPU, 1 did not run"},
      // Acme, trace_seren.csv
      {"job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n"
       "1,u1,2,16,64,Pretrain,COMPLETED,2023-03-01 08:00:00+08:00,2023-03-01 08:00:05+08:00,"
       "2023-03-01 08:10:05+08:00,600.0,5.0,9600.0\n"
       "2,u2,1,8,64,Eval,FAILED,2023-03-01 00:00:30+00:00,2023-03-01 08:00:35+08:00,,30.0,5.0,1\n",
       "0 16 600 u1; 30 8 30 u2; "},
      // Alibaba's PAI, pai_task_table, and the pods of 2023
      {"job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
       "a,worker,4.0,Terminated,100.0,400.0,600.0,29.3,100.0,V100\n"
       "b,tf,1.0,Terminated,100.0,400.0,600.0,29.3,50.0,MISC\n"
       "c,tf,1.0,Running,100.0,,600.0,29.3,100.0,T4\n"
       "d,ps,1.0,Terminated,100.0,400.0,600.0,29.3,,\n",
       "0 4 300 ; 1 ask for a part of a GPU, 1 ask for no GPU, 1 wait or run still"},
      {"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
       "p0,12000,16384,2,1000,,LS,Succeeded,100,160,110\n"
       "p1,12000,16384,0,0,,LS,Failed,100,160,110\n",
       "0 2 50 ; 1 ask for no GPU"},
      // MIT Supercloud, slurm-log.csv
      {"id_job,id_user,cpus_req,gres_used,state,time_submit,time_start,time_end,tres_alloc\n"
       "1,7,40,gpu:volta:2,3,1600000000,1600000010,1600000070,\"1=40,2=170000,4=1,1001=2,1002=2\"\n"
       "2,7,40,gpu:volta:1,5,1600000100,1600000110,1600000130,\"1=40,4=1\"\n"
       "3,8,40,,3,1600000100,1600000110,1600000130,\"1=40,4=1\"\n"
       "4,8,40,gpu:volta:1,4,1600000100,0,1600000130,\"1=40,1001=1\"\n",
       "0 2 60 7; 100 1 20 7; 1 ask for no GPU, 1 did not run"},
  };
  for (const auto& [text, jobs] : traces)
    cr_assert_eq(told(text), std::string(jobs), "%s: %s", text, told(text).c_str());
}

Test(trace, jobs_without_a_known_value_are_counted_and_do_not_end_the_reading) {
  const std::pair<const char*, const char*> traces[] = {
      {"JobID|Submit|ElapsedRaw|AllocTRES|State\n1|Unknown|60|gres/gpu=1|COMPLETED\n"
       "2||60|gres/gpu=1|COMPLETED\n3|None|60|gres/gpu=1|COMPLETED\n"
       "4|1767225600|60|gres/gpu=1|COMPLETED\n",
       "0 1 60 ; 3 have no time of submission"},
      {"job_id,vc,gpu_num,state,submit_time,start_time,end_time,duration\n"
       "1,a,None,COMPLETED,100,110,170,60\n2,a,2,COMPLETED,NaN,110,170,60\n"
       "3,a,2,COMPLETED,100,110,170,\n4,a,2,COMPLETED,100,110,170,nan\n"
       "5,a,2,CANCELLED,100,,,NULL\n",
       "0 2 60 a; 0 2 60 a; 1 ask for no GPU, 1 did not run, 1 have no time of submission"},
      {R"([{"status":"Pass","vc":"v","attempts":[{"start_time":"2017-10-09 07:00:00",
          "end_time":"2017-10-09 07:01:00","detail":[{"ip":"m","gpus":["g"]}]}],
          "submitted_time":"2017-10-09 07:00:00"},
          {"status":"Pass","vc":"v","attempts":[{"start_time":"2017-10-09 07:00:00",
          "end_time":"2017-10-09 07:01:00","detail":[{"ip":"m","gpus":["g"]}]}],
          "submitted_time":"None"},
          {"status":"Killed","vc":"v","attempts":[{"start_time":"None","end_time":null,
          "detail":[]}],"submitted_time":"2017-10-09 07:00:00"}])",
       "0 1 60 v; 1 did not run, 1 have no time of submission"}};
  for (const auto& [text, jobs] : traces)
    cr_assert_eq(told(text), std::string(jobs), "%s: %s", text, told(text).c_str());
  cr_assert(trace_from_text("JobID|Submit|ElapsedRaw|AllocTRES\n1|soon|60|gres/gpu=1\n")
                .error()
                .message()
                .starts_with("line 2: Submit is \"soon\""));
}

Test(trace, a_sacct_row_whose_name_has_the_separator_is_left_out) {
  cr_assert_eq(told("JobID|JobName|Submit|ElapsedRaw|AllocTRES\n"
                    "1|a|b|1767225600|60|gres/gpu=1\n2|c|1767225600|60|gres/gpu=1\n"
                    "3|d|1767225600|60|gres/gpu=1|\n"),
               std::string("0 1 60 ; 0 1 60 ; 1 have a name with the separator in it"));
}

Test(trace, jobs_that_cannot_be_simulated_are_left_out_and_counted) {
  auto trace = trace_from_csv("submit_s,num_gpus,duration_s\n0,0,60\n5,4,60\n6,4,0\n7,1000,60\n");
  cr_assert(trace.ok());
  trace->leave_out_larger(16, "the cluster");
  cr_assert_eq(trace->jobs.size(), 1u);
  cr_assert_eq(
      trace->left_out_text(),
      std::string("1 ask for more than the 16 GPUs of the cluster, 1 ask for no GPU, 1 did "
                  "not run"));
  cr_assert_eq(trace_from_csv("submit_s,num_gpus,duration_s\n0,0,60\n").error().message(),
               std::string("no job of it can be simulated: 1 ask for no GPU"));
}

Test(trace, errors_name_line_column_and_value) {
  auto said = [](const char* text) { return trace_from_csv(text).error().message(); };
  cr_assert(said("submit_s,num_gpus\n1,2\n").starts_with("line 1 has no column \"duration_s\""));
  cr_assert(said("submit_s,num_gpus,duration_s\n1,2,3\n1,x,3\n") ==
            "line 3: num_gpus is \"x\"; a number of at least 0 is wanted");
  cr_assert(said("submit_s,num_gpus,duration_s\n1,2\n") ==
            "line 2: duration_s is \"\"; a number of at least 0 is wanted");
  cr_assert(said("submit_s,num_gpus,duration_s\n-1,2,3\n") ==
            "line 2: submit_s is \"-1\"; a number of at least 0 is wanted");
  cr_assert(said("submit_s,num_gpus,duration_s\n1,nan,3\n") ==
            "line 2: num_gpus is \"nan\"; a number of at least 0 is wanted");
  cr_assert(said("submit_s,num_gpus,duration_s\n\n1,1.5,3\n") ==
            "line 3: num_gpus is \"1.5\"; a whole number is wanted");
  cr_assert(said("submit_s,num_gpus,duration_s\n0,1,1\n1e11,1,1\n").starts_with("line 3: "));
  cr_assert(said("a,submit_s,num_gpus,duration_s\n\"a,1,2,3\n") ==
            "line 2: a cell begins with a quote that is not closed");
  cr_assert_not(trace_from_csv("submit_s,num_gpus,duration_s\n").ok());
  cr_assert_not(trace_from_csv("").ok());
}

Test(trace, files_that_are_no_text_or_have_no_job_are_told_what_to_do) {
  using namespace std::string_literals;
  const auto said = [](const std::string& text) { return trace_from_text(text).error().message(); };
  for (const auto& [bytes, program] :
       {std::pair("\x1f\x8b\x08\x08"s, "gunzip"), std::pair("BZh91AY"s, "bunzip2"),
        std::pair("\xfd"
                  "7zXZ\0"s,
                  "unxz"),
        std::pair("\x28\xb5\x2f\xfd\x04"s, "unzstd"), std::pair("PK\x03\x04\x14"s, "unzip")})
    cr_expect_eq(said(bytes), "it is compressed; unpack it first, by "s + program);
  cr_expect_eq(said("\xff\xfeJ\0o\0b\0"s),
               "it is not text in UTF-8: it has bytes of 0; save it as CSV in UTF-8"s);
  cr_expect_eq(said("JobID|Account|Submit|ElapsedRaw|AllocTRES|State\n"),
               "it has no job below its column names; print those of more days, or give another "
               "file"s);
}

Test(trace, companions_and_older_jobs_of_a_site_are_left_out_and_counted) {
  const char* text =
      "JobIDRaw|Account|QOS|Partition|Submit|ElapsedRaw|AllocTRES|State\n"
      "1|a|normal|gpu|2026-11-20T16:00:00|600|gres/gpu=2|COMPLETED\n"
      "2|a|expansion|gpu|2026-11-20T16:01:00|300|gres/gpu=4|PREEMPTED\n"
      "3|a|normal|lent|2026-11-20T16:02:00|300|gres/gpu=4|PREEMPTED\n";
  const auto all = trace_from_csv(text);
  cr_assert(all.ok());
  cr_expect_eq(all->jobs.size(), 3u);
  const auto by_qos = trace_from_csv(text, {"expansion", ""});
  cr_assert(by_qos.ok());
  cr_expect_eq(by_qos->jobs.size(), 2u);
  cr_expect_eq(by_qos->left_out.at("were lent to other jobs by Swell"), 1);
  const auto since = trace_from_csv(text, {"", "", 1795190430});  // 16:00:30
  cr_assert(since.ok());
  cr_expect_eq(since->jobs.size(), 2u);
  cr_expect_eq(since->left_out.at("were submitted before"), 1);
  const auto by_partition = trace_from_csv(text, {"", "lent"});
  cr_assert(by_partition.ok());
  cr_expect_eq(by_partition->jobs.size(), 2u);
}
