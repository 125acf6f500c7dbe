// The published JavaScript SDK against a running appliance: each area once.
//
// Needs E2B_API_URL, E2B_SANDBOX_URL, E2B_VOLUME_API_URL and E2B_API_KEY; and in OUTSIDE_HEARD the
// file of what the host relying.test hears.

import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { after, before, test } from 'node:test'
import { CommandExitError, FileType, NotFoundError, Sandbox, Secret, TimeoutError, Volume } from 'e2b'
import { createRemoteJWKSet, jwtVerify } from 'jose'

let sandbox

before(async () => {
  sandbox = await Sandbox.create({ timeoutMs: 300_000, metadata: { suite: 'js sdk & co' }, envs: { WHO: 'wörld' } })
})

after(() => sandbox?.kill())

test('commands give output, exit codes and environment', async () => {
  const result = await sandbox.commands.run('echo "hello $WHO"; echo oops >&2')
  assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['hello wörld\n', 'oops\n', 0])
  await assert.rejects(sandbox.commands.run('exit 4'), (error) => error instanceof CommandExitError && error.exitCode === 4)
  await assert.rejects(sandbox.commands.run('sleep 62', { timeoutMs: 1_000 }), TimeoutError)
})

test('background commands stream, take input and die', async () => {
  let out = ''
  const command = await sandbox.commands.run('cat', { background: true, stdin: true, onStdout: (text) => (out += text) })
  await sandbox.commands.sendStdin(command.pid, 'typed\n')
  await sandbox.commands.closeStdin(command.pid)
  await command.wait()
  assert.equal(out, 'typed\n')
  const sleeper = await sandbox.commands.run('sleep 63', { background: true })
  assert.equal(await sleeper.kill(), true)
  await assert.rejects(sleeper.wait())
})

test('files', async () => {
  const bytes = new Uint8Array(1 << 20).map((_, at) => at % 251)
  await sandbox.files.write('data.bin', bytes.buffer)
  assert.deepEqual(await sandbox.files.read('data.bin', { format: 'bytes' }), bytes)
  const [entry] = (await sandbox.files.list('/home/user')).filter((found) => found.name === 'data.bin')
  assert.equal(entry.type, FileType.FILE)
  assert.equal(entry.size, bytes.length)
  await assert.rejects(sandbox.files.read('nowhere'), NotFoundError)
})

test('watching', async () => {
  await sandbox.files.makeDir('watched')
  const events = []
  const watch = await sandbox.files.watchDir('watched', (event) => events.push(event.type))
  await sandbox.files.write('watched/file', 'x')
  const limit = Date.now() + 5_000
  while (events.length < 3 && Date.now() < limit) await new Promise((go) => setTimeout(go, 20))
  assert.deepEqual(events, ['create', 'chmod', 'write'])
  await watch.stop()
})

test('a terminal', async () => {
  let screen = ''
  const decoder = new TextDecoder()
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, onData: (data) => (screen += decoder.decode(data, { stream: true })) })
  await sandbox.pty.resize(terminal.pid, { cols: 101, rows: 30 })
  await sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode('tput cols; exit\n'))
  await terminal.wait()
  assert.match(screen, /101/)
})

test('life and listing', async () => {
  const paginator = Sandbox.list({ query: { metadata: { suite: 'js sdk & co' } } })
  const found = await paginator.nextItems()
  assert.deepEqual(found.map((one) => one.sandboxId), [sandbox.sandboxId])
  const other = await Sandbox.create()
  assert.equal(await other.isRunning(), true)
  assert.equal(await Sandbox.kill(other.sandboxId), true)
  assert.equal(await Sandbox.kill(other.sandboxId), false)
  assert.equal(await other.isRunning(), false)
})

test('a port of a sandbox answers, also one on its loopback only', async () => {
  await sandbox.files.write('site/index.html', 'served')
  await sandbox.commands.run('python -m http.server 8080 --bind 127.0.0.1 -d site', { background: true, timeoutMs: 0 })
  const url = process.env.E2B_SANDBOX_URL
  const headers = { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '8080' }
  assert.equal(await (await fetch(`${url}/index.html`, { headers })).text(), 'served')
  const closed = await fetch(url, { headers: { ...headers, 'E2b-Sandbox-Port': '8081' } })
  assert.equal(closed.status, 502)
  assert.match((await closed.json()).message, /port is not open/)
})

test('a volume is in a sandbox and outlives it', async () => {
  const volume = await Volume.create(`data-${process.pid}`)
  const mounted = await Sandbox.create({ timeoutMs: 300_000, volumeMounts: { '/data': volume } })
  await mounted.files.write('/data/kept', 'x')
  const { volumeMounts } = await mounted.getInfo()
  assert.deepEqual(volumeMounts, [{ name: volume.name, path: '/data' }])
  await assert.rejects(Volume.destroy(volume.volumeId), /in use/)
  await mounted.kill()
  assert.equal(await volume.readFile('/kept'), 'x')
  assert.equal(await Volume.destroy(volume.volumeId), true)
})

test('a host hears who a sandbox is, and verifies it', async () => {
  const audience = 'https://vault.example.com'
  const named = await Sandbox.create({
    timeoutMs: 300_000,
    iam: { tokens: { vault: Secret.iamToken({ audience, tokenType: 'JWT-SVID' }) } },
    network: {
      rules: {
        'relying.test': [{ transform: ({ iam }) => ({ headers: { 'X-Vault-Token': iam.tokens.vault } }) }],
      },
    },
  })
  const path = `/${named.sandboxId}`
  const said = await named.commands.run(`curl -sS --max-time 20 https://relying.test${path}`)
  assert.equal(said.stdout, 'heard')
  const lines = (await readFile(process.env.OUTSIDE_HEARD, 'utf8')).trim().split('\n')
  const [heard] = lines.map((line) => JSON.parse(line)).filter((line) => line.path === path)

  const api = process.env.E2B_API_URL
  const about = await (await fetch(`${api}/.well-known/openid-configuration`)).json()
  const keys = createRemoteJWKSet(new URL(about.jwks_uri))
  const rules = { audience, issuer: api, algorithms: ['ES256'], requiredClaims: ['iat', 'exp', 'jti'] }
  const { payload } = await jwtVerify(heard.headers['x-vault-token'], keys, rules)
  const { templateId } = await named.getInfo()
  assert.equal(payload.sandbox_id, named.sandboxId)
  assert.equal(
    payload.sub,
    `spiffe://sandboxo/team/${payload.team_id}/template/${templateId}` +
      `/sandbox/${named.sandboxId}/execution/${payload.execution_id}`,
  )
  assert.equal(payload.exp - payload.iat, 300)
  await assert.rejects(jwtVerify(heard.headers['x-vault-token'], keys, { ...rules, audience: 'another' }))
  await named.kill()

  const tokens = { vault: Secret.iamToken({ audience, tokenType: 'OIDC' }) }
  await assert.rejects(Sandbox.create({ iam: { tokens } }), /iam\.tokens\.vault\.tokenType: /)
})
