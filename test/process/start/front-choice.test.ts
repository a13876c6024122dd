import t from 'tap'
import { coresMinusOne } from '../../../src/base/settings/setting.ts'
import { loadConfig } from '../../../src/process/config/config.ts'
import type { Config } from '../../../src/process/config/settings.ts'
import { chooseFront } from '../../../src/process/start/front-choice.ts'

const DEFAULTS = loadConfig([], {})
const QUIET = { notice: () => undefined }
const NO_SHARING = async () => false

function config(front: 'auto' | 'uws' | 'node', serve: number, shared = false): Config {
  return {
    ...DEFAULTS,
    listen: { ...DEFAULTS.listen, front, shared },
    threads: { ...DEFAULTS.threads, serve },
  }
}

t.test('the front that was asked for serves, and auto takes one', async t => {
  t.match(await chooseFront(config('node', 3), QUIET), {
    front: 'node',
    config: { listen: { front: 'node' }, threads: { serve: 3 } },
  })
  const { front, config: chosen } = await chooseFront(config('auto', 3), QUIET)
  t.equal(chosen.listen.front, front)
  t.not(front, 'auto')
})

t.test('where the system shares no port, one thread serves', async t => {
  const more = coresMinusOne.default() + 5
  t.equal((await chooseFront(config('node', 1), QUIET, NO_SHARING)).config.threads.serve, 1)
  t.equal(
    (await chooseFront(config('node', coresMinusOne.default()), QUIET, NO_SHARING)).config.threads.serve,
    1,
  )
  await t.rejects(chooseFront(config('node', more), QUIET, NO_SHARING), {
    name: 'StartError',
    message: /^threads\.serve: must be 1, because the node HTTP front cannot share a port on /,
    isPortTaken: false,
  })
  await t.rejects(chooseFront(config('node', 1, true), QUIET, NO_SHARING), {
    message: /^listen\.shared: must be false, because /,
  })
})
