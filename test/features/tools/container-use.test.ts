import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import type { Exchange } from '../../../src/exchange/exchange.ts'
import type { Container, Sandbox } from '../../../src/features/sandbox/sandbox.ts'
import {
  type ContainerDeps,
  useContainer,
  wantedContainer,
} from '../../../src/features/tools/container/container-use.ts'

const SIGNAL = new AbortController().signal
const NO_BOUNDS = { timeoutMs: null, maxOutputLength: null }
const EXCHANGE = {
  caller: { organizationId: 'org-a', workspaceId: 'ws-a', keyHash: 'hash' },
} as unknown as Exchange

/** A sandbox that has room from the second call on. */
function fullSandbox(): Sandbox {
  let calls = 0
  const container: Container = {
    id: 'cntr_a',
    isNew: true,
    run: async () => ({ outputs: [], notice: null }),
    list: async () => [],
    read: async () => null,
    write: async () => undefined,
    end: async () => undefined,
  }
  return {
    check: async () => undefined,
    async open() {
      if (++calls === 1) throw new GatewayError('overloaded', 'The sandbox is at capacity; try again later')
      return container
    },
  }
}

t.test('a call after a refusal of the sandbox tries again', async t => {
  const deps = {
    sandbox: fullSandbox(),
    files: { find: async () => null, readWhole: async () => Buffer.alloc(0) },
    config: { tools: { sandbox: { fileMb: 1, memoryMb: 512 } } },
  } as unknown as ContainerDeps
  const use = useContainer(deps, EXCHANGE, wantedContainer({}, 'tools[0]'))
  await use.check()
  const codes = [{ language: 'shell', text: 'true' }] as const
  await t.rejects(use.run(codes, NO_BOUNDS, SIGNAL), { code: 'overloaded' })
  t.match(await use.run(codes, NO_BOUNDS, SIGNAL), { containerId: 'cntr_a' })
})
