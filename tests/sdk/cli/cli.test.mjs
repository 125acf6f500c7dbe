// The published e2b CLI, as people type it. Needs E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY, a
// template `base`, an image called e2bdev/base, and tmux.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

const program = join(import.meta.dirname, 'node_modules/.bin/e2b')
const own = join(await mkdtemp(join(tmpdir(), 'sbxo-cli-')), 'tmux')
// Nobody's login, and no question whether there is a newer one.
const env = { ...process.env, HOME: tmpdir(), NO_UPDATE_NOTIFIER: '1', NO_COLOR: '1', TERM: 'xterm' }
const name = 'cli-' + Math.random().toString(36).slice(2, 10)

function start(command, args, input) {
  return new Promise((resolve) => {
    const child = execFile(command, args, { env, timeout: 120_000 }, (error, out, err) => {
      resolve({ code: error ? error.code : 0, out, err })
    })
    // Not everything reads what it is given before it ends.
    child.stdin.on('error', () => {})
    child.stdin.end(input ?? '')
  })
}

const e2b = (...args) => start(process.execPath, [program, ...args])

async function said(...args) {
  const { code, out, err } = await e2b(...args)
  assert.equal(code, 0, `${args.join(' ')}: ${out}${err}`)
  return out
}

const json = async (...args) => JSON.parse(await said(...args, '--format', 'json'))

/** A terminal of its own; what is typed, and waiting for what is shown. */
async function terminal(...args) {
  const session = 't' + Math.random().toString(36).slice(2, 8)
  const tmux = (...words) => start('tmux', ['-S', own, ...words])
  const line = [process.execPath, program, ...args].join(' ')
  // It stays to be looked at once the program has ended.
  const begun = await tmux('new-session', '-d', '-s', session, '-x', '100', '-y', '30', `${line}; echo CODE=$?; sleep 600`)
  assert.equal(begun.code, 0, begun.err)
  const shown = async () => (await tmux('capture-pane', '-p', '-t', session)).out
  return {
    type: (text) => tmux('send-keys', '-t', session, text, 'Enter'),
    until: async (pattern) => {
      let last
      for (let count = 0; count < 600; count++) {
        last = await shown()
        const found = last.match(pattern)
        if (found) return found
        await sleep(100)
      }
      assert.fail(`never ${pattern} in:\n${last}`)
    },
  }
}

after(() => start('tmux', ['-S', own, 'kill-server']))

// Most of the time goes into starts of the CLI.
describe('the e2b CLI', { concurrency: true }, () => {
  test('a sandbox from its beginning to its end', async () => {
    const id = (await said('sandbox', 'create', 'base', '--detach', '--timeout', '600')).trim()
    const [listed, info, hello, failed, piped, background] = await Promise.all([
      json('sandbox', 'list'),
      json('sandbox', 'info', id),
      e2b('sandbox', 'exec', id, '--', 'echo', 'hello there'),
      e2b('sandbox', 'exec', '-u', 'root', '-c', '/tmp', '-e', 'A=b', id, '--', 'sh', '-c', 'whoami; pwd; echo $A; exit 7'),
      start(process.execPath, [program, 'sandbox', 'exec', id, '--', 'cat'], 'piped'),
      said('sandbox', 'exec', '-b', id, '--', 'sleep', '600'),
    ])
    assert.ok(listed.some((it) => it.sandboxId === id && it.state === 'running' && it.name === 'base'), JSON.stringify(listed))
    assert.equal(info.state, 'running')
    assert.deepEqual([hello.code, hello.out], [0, 'hello there\n'])
    assert.deepEqual([failed.code, failed.out], [7, 'root\n/tmp\nb\n'])
    assert.deepEqual([piped.code, piped.out], [0, 'piped'])
    assert.match(background, /^\d*\s*$/)

    const [logs, metrics] = await Promise.all([said('sandbox', 'logs', id), said('sandbox', 'metrics', id)])
    assert.match(logs, /sandbox started/)
    assert.match(logs, /echo 'hello there'/)
    assert.match(metrics, /Metrics for sandbox/)

    const screen = await terminal('sandbox', 'connect', id)
    await screen.until(/\$ *\n/)
    await screen.type('tty && stty size && echo typed > /tmp/typed')
    await screen.until(/\/dev\/pts\/\d+\n30 100/)
    await screen.type('exit')
    await screen.until(/CODE=0/)

    assert.match(await said('sandbox', 'pause', id), /has been paused/)
    const paused = await json('sandbox', 'list', '--state', 'paused')
    assert.ok(paused.some((it) => it.sandboxId === id))
    assert.match(await said('sandbox', 'resume', id), /has been resumed/)
    assert.equal(await said('sandbox', 'exec', id, '--', 'cat', '/tmp/typed'), 'typed\n')
    const snapshot = (await said('sandbox', 'snapshot', 'create', id)).match(/snapshot (\S+) from/)[1]
    assert.match(await said('sandbox', 'snapshot', 'list', id), new RegExp(snapshot))
    await said('sandbox', 'snapshot', 'delete', snapshot)
    assert.match(await said('sandbox', 'kill', id), /has been killed/)
    const gone = await e2b('sandbox', 'info', id)
    assert.notEqual(gone.code, 0, gone.out)
  })

  test('a template from its Dockerfile to its end', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'sbxo-cli-'))
    await writeFile(join(folder, 'hello.txt'), 'of the template\n')
    await writeFile(
      join(folder, 'Dockerfile'),
      'FROM e2bdev/base\nWORKDIR /srv\nCOPY hello.txt hello.txt\nRUN cp hello.txt copy.txt\n',
    )
    const built = await said('template', 'create', '--path', folder, '--cpu-count', '1', '--memory-mb', '512', name)
    assert.match(built, /finished/)
    const listed = async () => (await json('template', 'list')).find((it) => it.aliases.includes(name))
    const made = await listed()
    assert.deepEqual([made.cpuCount, made.memoryMB, made.public, made.buildStatus], [1, 512, false, 'ready'])
    await said('template', 'publish', '-y', name)
    assert.equal((await listed()).public, true)
    await said('template', 'unpublish', '-y', name)
    assert.equal((await listed()).public, false)

    // With a terminal it lives as long as that.
    const screen = await terminal('sandbox', 'create', name)
    await screen.until(/\/srv\$ *\n/)
    await screen.type('cat copy.txt')
    await screen.until(/of the template/)
    await screen.type('exit')
    await screen.until(/CODE=0/)

    const bad = await mkdtemp(join(tmpdir(), 'sbxo-cli-'))
    await writeFile(join(bad, 'Dockerfile'), 'FROM e2bdev/base\nRUN echo why >&2 && exit 3\n')
    const failed = await e2b('template', 'create', '--path', bad, name + '-bad')
    assert.notEqual(failed.code, 0)
    assert.match(failed.out + failed.err, /exit status 3/)
    const status = (await json('template', 'list')).find((it) => it.aliases.includes(name + '-bad'))
    assert.equal(status.buildStatus, 'error')
    await said('template', 'delete', '-y', name)
    assert.equal(await listed(), undefined)
  })

  test('what is wrong is said', async () => {
    const unknown = await e2b('sandbox', 'info', 'sbx-loc-00000000000000000000')
    assert.notEqual(unknown.code, 0)
    assert.match(unknown.out + unknown.err, /wasn't found/)
    const nowhere = await e2b('sandbox', 'create', 'nowhere', '--detach')
    assert.notEqual(nowhere.code, 0)
    assert.match(nowhere.out + nowhere.err, /nowhere/)
  })
})
