//! The host under the sandboxes: its disk, its logs, and what is broken on it.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use reqwest::{Method, StatusCode};
use sandboxo_tests::{Appliance, Client, Shared, id, scaled};
use serde_json::{Value, json};

/// A template of an archive made by `script`, which finds a folder for the archive's files in `$R`
/// and writes `$T`.
async fn import(
    client: &Client,
    name: &str,
    script: &str,
    resources: &[(&str, &str)],
) -> Result<(StatusCode, String)> {
    let work = tempfile::tempdir()?;
    let archive = work.path().join("image.tar");
    let made = Command::new("bash")
        .args(["-e", "-c", script])
        .env("R", work.path().join("root"))
        .env("T", &archive)
        .current_dir(work.path())
        .output()?;
    ensure!(made.status.success(), "{made:?}");
    let post = client
        .admin(Method::POST, "/admin/v1/templates")
        .query(&[("name", name)])
        .query(resources)
        .body(tokio::fs::File::open(archive).await?);
    let answer = post.send().await?;
    Ok((answer.status(), answer.text().await?))
}

async fn remove(client: &Client, name: &str) -> Result<StatusCode> {
    Ok(client.admin(Method::DELETE, &format!("/admin/v1/templates/{name}")).send().await?.status())
}

/// What the zone keeps of one sandbox.
fn slot(state: &Path, sandbox: &Value) -> Result<std::path::PathBuf> {
    let wanted = id(sandbox)?.replace('-', "_");
    for entry in fs::read_dir(state.join("zone/slots"))?.flatten() {
        let about = fs::read_to_string(entry.path().join("slot.json")).unwrap_or_default();
        if about.replace('-', "_").contains(&wanted) {
            return Ok(entry.path());
        }
    }
    anyhow::bail!("no slot of {wanted}")
}

#[tokio::test]
async fn row_38_no_name_leads_out_of_where_it_belongs() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    for bad in ["..%2f..%2fetc%2fpasswd", "%2e%2e", "%00", "a%2F..%2Fb", "-", "%F0%9F%A6%80"] {
        for (method, path) in [
            (Method::GET, format!("/sandboxes/{bad}")),
            (Method::DELETE, format!("/sandboxes/{bad}")),
            (Method::GET, format!("/sandboxes/{bad}/metrics")),
            (Method::DELETE, format!("/templates/{bad}")),
        ] {
            let status = client.api(method, &path).send().await?.status();
            ensure!(status.is_client_error(), "{path}: {status}");
        }
        let body = json!({ "templateID": bad });
        let status = client.api(Method::POST, "/v2/sandboxes").json(&body).send().await?.status();
        ensure!(status.is_client_error(), "{bad}: {status}");
    }
    // Inside, a path may go anywhere, and stays inside: the host's own name is another.
    let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
    for path in ["/proc/self/root/etc/hostname", "../../etc/hostname", "/proc/1/root/etc/hostname"]
    {
        let text = String::from_utf8(client.read(&sandbox, path).await?)?;
        ensure!(text != host && text.starts_with("sbx"), "{path}: {text}");
    }
    client.kill(&sandbox).await?;

    let outside = tempfile::tempdir()?;
    let target = outside.path().display();
    for (name, script) in [
        ("up", "mkdir -p $R; echo x > x; tar -P --transform s,^,../../../../../../tmp/, -cf $T x"),
        ("absolute", "echo x > x; tar -P --transform s,^,$O/absolute-, -cf $T x"),
        (
            "link",
            "mkdir a b; ln -s $O a/link; mkdir b/link; echo x > b/link/through
             tar -cf $T -C a link; tar -rf $T -C $PWD/b link/through",
        ),
        ("hard", "echo x > x; ln x y; tar -P --transform 's,^x$,/etc/hostname,' -cf $T x y"),
    ] {
        let script = format!("O={target}\n{script}");
        let (status, said) = import(&client, &format!("row-38-{name}"), &script, &[]).await?;
        ensure!(status == 400 || status == 201, "{name}: {status} {said}");
        ensure!(fs::read_dir(outside.path())?.next().is_none(), "{name} wrote on the host");
        ensure!(!Path::new("/tmp/x").exists(), "{name} wrote on the host");
        if status == 201 {
            ensure!(remove(&client, &format!("row-38-{name}")).await?.is_success());
        }
    }
    Ok(())
}

/// The report wants 403 from a server that can mount the host's folders and forbids it by default.
/// None can be asked for here: `volumeMounts` names volumes, of which there are none, so it is the
/// request that is wrong (400), and no permission that is missing.
#[tokio::test]
async fn row_41_nothing_of_the_host_can_be_mounted() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let body = json!({
        "templateID": "base", "volumeMounts": [{ "name": "/etc", "path": "/mnt" }],
    });
    let answer = client.api(Method::POST, "/v2/sandboxes").json(&body).send().await?;
    let (status, text) = (answer.status(), answer.text().await?);
    ensure!(status == 400 && text.contains("volumeMounts"), "{status} {text}");
    Ok(())
}

/// 54: of 128 MiB, in which the agent lists 32,768 entries of a folder.
#[tokio::test]
async fn row_54_a_folder_too_large_for_its_sandbox_is_refused_by_name() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let script = "mkdir -p $R/many; cd $R/many; seq 32769 | xargs touch; tar -C $R -cf $T .";
    let (status, said) = import(&client, "row-54", script, &[("memory_mib", "128")]).await?;
    ensure!(status == 201, "{status} {said}");
    let sandbox = client.create(json!({ "templateID": "row-54" })).await?;
    let list = async |path: &str| {
        let asked = json!({ "path": path });
        client.call(&sandbox, "filesystem.Filesystem/ListDir", asked).await
    };
    let (status, refused) = list("/many").await?;
    let text = refused.get("message").and_then(Value::as_str).unwrap_or_default();
    ensure!(status == 429 && text.contains("more than 32768 entries"), "{status} {refused}");
    ensure!(refused.get("code") == Some(&"resource_exhausted".into()), "{refused}");
    let (status, listed) = list("/").await?;
    ensure!(status == 200 && listed.to_string().contains("/many"), "{status} {listed}");
    client.kill(&sandbox).await?;
    ensure!(remove(&client, "row-54").await?.is_success());
    Ok(())
}

#[tokio::test]
async fn row_56_an_image_may_have_files_that_nobody_may_read() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let script = "mkdir -p $R/etc $R/closed/deep $R/usr/bin; echo x > $R/closed/deep/file
                  echo y > $R/etc/shadow; mkfifo $R/pipe; touch $R/usr/bin/odd
                  chmod 4111 $R/usr/bin/odd; chmod 0 $R/etc/shadow $R/closed/deep/file
                  chmod 555 $R/closed; chmod 0 $R/closed/deep; tar -C $R -cf $T .";
    let (status, said) = import(&client, "row-56", script, &[]).await?;
    ensure!(status == 201, "{status} {said}");
    let sandbox = client.create(json!({ "templateID": "row-56" })).await?;
    ensure!(client.read(&sandbox, "/closed/deep/file").await? == b"x\n");
    for (path, mode) in [
        ("/etc/shadow", "----------"),
        ("/closed/deep", "d---------"),
        ("/closed", "dr-xr-xr-x"),
        ("/usr/bin/odd", "u--x--x--x"),
    ] {
        let asked = json!({ "path": path });
        let stat = client.ask(&sandbox, "filesystem.Filesystem/Stat", asked).await?;
        ensure!(stat.pointer("/entry/permissions") == Some(&mode.into()), "{path}: {stat}");
    }
    client.kill(&sandbox).await?;
    ensure!(remove(&client, "row-56").await?.is_success());
    Ok(())
}

#[tokio::test]
async fn row_84_and_87_a_sandbox_with_a_broken_disk_hurts_nobody_and_can_be_killed() -> Result<()> {
    let Shared { client, state, .. } = Shared::get().await?;
    let (broken, other) = (client.sandbox().await?, client.sandbox().await?);
    let writes = "while :; do head -c 1M /dev/urandom > x; cat x > /dev/null; done";
    client.start_and_leave(&broken, writes).await?;
    let disk = slot(&state, &broken)?.join("disk.img");
    fs::File::options().write(true).open(&disk)?.set_len(0)?;
    for _ in 0..5 {
        // Its disk is gone: it may end or go on, and nobody else may notice.
        let _either = client.run(&broken, "sync; cat x | wc -c").await;
        ensure!(client.run(&other, "echo well").await?.stdout == "well\n");
    }
    let status = client.kill(&broken).await?;
    ensure!(status == 204 || status == 404, "{status}");
    ensure!(!client.running().await?.contains(&id(&broken)?));
    client.kill(&other).await.map(drop)
}

#[tokio::test]
async fn row_87_a_template_whose_image_is_lost_can_be_deleted() -> Result<()> {
    let Shared { client, state, .. } = Shared::get().await?;
    let (status, said) =
        import(&client, "row-87", "mkdir $R; echo 87 > $R/x; tar -C $R -cf $T .", &[]).await?;
    ensure!(status == 201, "{status} {said}");
    let image: Value = serde_json::from_str(&said)?;
    let image = image.get("image").and_then(Value::as_str).context("an image")?;
    fs::remove_dir_all(state.join("zone/images").join(image))?;
    let body = json!({ "templateID": "row-87" });
    let answer = client.api(Method::POST, "/v2/sandboxes").json(&body).send().await?;
    let (status, text) = (answer.status(), answer.text().await?);
    ensure!(!status.is_success() && text.contains("message"), "{status} {text}");
    ensure!(remove(&client, "row-87").await?.is_success());
    ensure!(remove(&client, "row-87").await? == 404);
    Ok(())
}

#[tokio::test]
async fn row_85_and_129_a_sandbox_has_the_disk_that_it_was_given_and_no_more() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    // The image's own size does not count.
    let script = "mkdir -p $R; head -c 60M /dev/urandom > $R/large; tar -C $R -cf $T .";
    let (status, said) = import(&client, "row-85", script, &[("disk_mib", "64")]).await?;
    ensure!(status == 201, "{status} {said}");
    let sandbox = client.create(json!({ "templateID": "row-85" })).await?;
    let write = async |path: &str, mib: usize| -> Result<(u16, String)> {
        let upload = client
            .agent(Method::POST, &sandbox, "/files")
            .query(&[("path", path), ("username", "root")])
            .header("Content-Type", "application/octet-stream")
            .body(vec![b'x'; mib << 20]);
        let answer = upload.send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    };
    let written = write("/part", 50).await?;
    ensure!(written.0 == 200, "{written:?}");
    let full = write("/rest", 40).await?;
    ensure!(full.0 == 507, "{full:?}");
    for path in ["/part", "/rest"] {
        let asked = json!({ "path": path });
        client.ask(&sandbox, "filesystem.Filesystem/Remove", asked).await?;
    }
    let again = write("/again", 40).await?;
    ensure!(again.0 == 200, "{again:?}");
    client.kill(&sandbox).await?;
    ensure!(remove(&client, "row-85").await?.is_success());
    Ok(())
}

#[tokio::test]
async fn row_85_a_sandbox_can_not_fill_the_hosts_logs() -> Result<()> {
    let Shared { client, state, .. } = Shared::get().await?;
    let sandbox = client.sandbox().await?;
    let noise = "import ctypes, fcntl\nc = ctypes.CDLL(None)\nnull = open('/dev/null')\n\
                 for round in range(10):\n\
                 \x20 for number in range(335, 470): c.syscall(number, -1, -1, -1, -1, -1, -1)\n\
                 \x20 for command in range(500):\n\
                 \x20   try: fcntl.ioctl(null, 0xab00 + command)\n\
                 \x20   except OSError: pass\n\
                 for number in (1, 2):\n\
                 \x20 for round in range(100): open(f'/proc/1/fd/{number}', 'w').write('x' * 4096)\n";
    let upload = client
        .agent(Method::POST, &sandbox, "/files")
        .query(&[("path", "/tmp/noise.py"), ("username", "user")])
        .header("Content-Type", "application/octet-stream")
        .body(noise);
    ensure!(upload.send().await?.status() == 200);
    let made = client.run_as(&sandbox, "root", "python3 /tmp/noise.py; echo $?").await?;
    ensure!(made.stdout == "0\n", "{made:?}");
    let mut bytes = 0;
    for entry in fs::read_dir(slot(&state, &sandbox)?)?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "log") {
            bytes += entry.metadata()?.len();
        }
    }
    ensure!(bytes < 64 << 10, "{bytes} bytes of logs");
    client.kill(&sandbox).await.map(drop)
}

#[tokio::test]
async fn row_89_threads_are_many_and_not_endless() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let (sandbox, other) = (client.sandbox().await?, client.sandbox().await?);
    let many = scaled(1_000, 4_000);
    let script = format!(
        "python3 -c 'import threading\nthreading.stack_size(65536)\nover = threading.Event()\n\
         all = [threading.Thread(target=over.wait) for _ in range({many})]\n\
         for one in all: one.start()\nprint(threading.active_count()); over.set()'"
    );
    let made = client.run(&sandbox, &script).await?;
    ensure!(made.stdout == format!("{}\n", many + 1), "{made:?}");
    let most = client.run(&sandbox, "ulimit -u").await?.stdout;
    ensure!(most.trim().parse::<u64>().is_ok_and(|most| (4_000..65_536).contains(&most)), "{most}");
    client.start_and_leave(&sandbox, "bomb() { bomb | bomb & }; bomb; sleep 5").await?;
    for _ in 0..5 {
        ensure!(client.run(&other, "echo well").await?.stdout == "well\n");
    }
    client.kill(&sandbox).await?;
    client.kill(&other).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn row_121_no_log_tells_a_secret() -> Result<()> {
    let settings = json!({ "log": { "filter": "debug", "format": "json" } });
    let mut appliance = Appliance::start_set(1, settings).await?;
    let client = appliance.client.clone();
    let body = json!({
        "templateID": "base",
        "envVars": { "PASSWORD": "mark-in-environment" },
        "metadata": { "note": "kept" },
        "network": { "allowPublicTraffic": false },
    });
    let sandbox = client.create(body).await?;
    let command = json!({
        "process": {
            "cmd": "/bin/bash",
            "args": ["-c", "echo mark-in-output; cat; exit 3 # mark-in-command"],
            "envs": { "OTHER": "mark-in-request" },
        },
    });
    let start = "process.Process/Start";
    let mut stream = client.open(&sandbox, start, &command, &[]).await?;
    let pid = stream.pid().await?;
    client.feed(&sandbox, pid, b"mark-in-input").await?;
    client.end_input(&sandbox, pid).await?;
    ensure!(stream.rest().await?.exit_code() == Some(3));
    let upload = client
        .agent(Method::POST, &sandbox, "/files")
        .query(&[("path", "/tmp/x"), ("signature", "mark-in-signature")])
        .header("Content-Type", "application/octet-stream")
        .body("mark-in-file");
    upload.send().await?;
    let wrong = client.api(Method::GET, "/v2/sandboxes").header("X-API-Key", "e2b_mark-in-key");
    wrong.send().await?;
    appliance.crash()?;
    appliance.serve().await?;
    ensure!(client.kill(&sandbox).await? == 204);

    let text = |name: &str| sandbox.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    let (agent, traffic) = (text("envdAccessToken"), text("trafficAccessToken"));
    ensure!(!agent.is_empty() && !traffic.is_empty(), "{sandbox}");
    let secrets = [client.key.as_str(), &client.token, &agent, &traffic, "mark-in-"];
    let mut logs = Vec::new();
    gather(appliance.state(), &mut logs)?;
    let mut read = 0;
    for log in logs {
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        read += text.len();
        for line in text.lines() {
            let told = secrets.iter().find(|secret| line.contains(**secret));
            ensure!(told.is_none(), "{}: {line}", log.display());
        }
    }
    ensure!(read > 1_000, "the logs are somewhere else");
    Ok(())
}

fn gather(folder: &Path, logs: &mut Vec<std::path::PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        let path = entry.path();
        if entry.file_type()?.is_dir() && !path.ends_with("zone/images") {
            gather(&path, logs)?;
        } else if path.extension().is_some_and(|extension| extension == "log") {
            logs.push(path);
        }
    }
    Ok(())
}

#[tokio::test]
async fn row_127_an_image_without_accounts_serves_user() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let script = "mkdir -p $R/etc; echo root:x:0:0::/root:/bin/sh > $R/etc/passwd
                  printf 'root:x:0:\\nsudo:x:27:\\n' > $R/etc/group; tar -C $R -cf $T .";
    let (status, said) = import(&client, "row-127", script, &[]).await?;
    ensure!(status == 201, "{status} {said}");
    let sandbox = client.create(json!({ "templateID": "row-127" })).await?;
    let upload = client
        .agent(Method::POST, &sandbox, "/files")
        .query(&[("path", "notes/a.txt"), ("username", "user")])
        .header("Content-Type", "application/octet-stream")
        .body("mine");
    let answer = upload.send().await?;
    ensure!(answer.status() == 200, "{}", answer.text().await?);
    let asked = json!({ "path": "notes/a.txt" });
    let stat = client.ask(&sandbox, "filesystem.Filesystem/Stat", asked).await?;
    let entry = stat.get("entry").context("an entry")?;
    ensure!(entry.get("path") == Some(&"/home/user/notes/a.txt".into()), "{stat}");
    ensure!(entry.get("owner") == Some(&"user".into()), "{stat}");
    ensure!(
        client.read(&sandbox, "/etc/group").await? == b"root:x:0:\nsudo:x:27:user\nuser:x:1000:\n"
    );
    client.kill(&sandbox).await?;
    ensure!(remove(&client, "row-127").await?.is_success());
    Ok(())
}

/// 113: by OpenSSL's folder, by the bundle, and where programs that bring their own are led.
#[tokio::test]
async fn row_113_a_sandbox_believes_the_authority_of_its_zone() -> Result<()> {
    let Shared { client, .. } = Shared::get().await?;
    let sandbox = client.create(json!({ "templateID": "base" })).await?;
    let script = "set -e; own=/usr/local/share/ca-certificates/sandboxo.crt
                  bundle=/etc/ssl/certs/ca-certificates.crt
                  openssl verify -no-CAfile -no-CAstore -CApath /etc/ssl/certs $own
                  grep -qF \"$(sed -n 2p $own)\" $bundle
                  update-ca-certificates 2>&1 | tail -1
                  openssl verify -no-CApath -no-CAstore -CAfile $bundle $own
                  [ $NODE_EXTRA_CA_CERTS = $own ]; [ $REQUESTS_CA_BUNDLE = $bundle ]
                  [ $SSL_CERT_FILE = $bundle ]; echo all";
    let said = client.run_as(&sandbox, "root", script).await?;
    ensure!(said.stdout.ends_with("all\n"), "{said:?}");
    client.kill(&sandbox).await?;
    Ok(())
}
