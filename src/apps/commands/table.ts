/** The table of all commands. The code of a command is loaded only when it is needed. */
import { type Command, commandOf } from './command.ts'
import { start } from './start.ts'

/** Commands by the first word of their names, in the order of the usage text. */
const COMMANDS_BY_WORD: ReadonlyMap<string, () => Promise<readonly Command[]>> = new Map([
  ['start', async () => [start]],
  ['check', async () => [(await import('./check.ts')).check]],
  ['plan', async () => [(await import('./plan.ts')).plan]],
  ['replay', async () => [(await import('./replay/replay.ts')).replay]],
  ['connect', async () => [(await import('./connect.ts')).connect]],
  [
    'keys',
    async () => {
      const { keysCreate, keysList, keysRotate } = await import('./keys.ts')
      return [keysCreate, keysList, keysRotate]
    },
  ],
  [
    'models',
    async () => {
      const { modelsImport, modelsSources } = await import('./models.ts')
      return [modelsImport, modelsSources]
    },
  ],
  [
    'vault',
    async () => {
      const { vaultRotate, vaultStatus } = await import('./vault.ts')
      return [vaultStatus, vaultRotate]
    },
  ],
  [
    'batches',
    async () => {
      const { batchesCancel, batchesList, batchesWatch } = await import('./batches.ts')
      return [batchesList, batchesWatch, batchesCancel]
    },
  ],
  [
    'providers',
    async () => {
      const { providersPause, providersPaused, providersResume } = await import('./providers.ts')
      return [providersPause, providersResume, providersPaused]
    },
  ],
  [
    'rollouts',
    async () => {
      const { rolloutsAdvance, rolloutsHold, rolloutsList, rolloutsRollback } = await import('./rollouts.ts')
      return [rolloutsList, rolloutsAdvance, rolloutsHold, rolloutsRollback]
    },
  ],
  ['top', async () => [(await import('./top/top.ts')).top]],
  [
    'captures',
    async () => {
      const { capturesDelete, capturesList, capturesShow } = await import('./captures/captures.ts')
      return [capturesList, capturesShow, capturesDelete]
    },
  ],
  ['alerts', async () => [(await import('./alerts.ts')).alertsTest]],
  ['doctor', async () => [(await import('./doctor/doctor.ts')).doctor]],
  ['prove', async () => [(await import('./prove.ts')).prove]],
  ['reconcile', async () => [(await import('./reconcile.ts')).reconcile]],
  ['verify', async () => [(await import('./verify.ts')).verify]],
  ['why', async () => [(await import('./terminal/why.ts')).why]],
])

/** The commands that a command line may mean: those with its first word if one of them is complete, otherwise all. */
export async function commandsFor(words: readonly string[]): Promise<readonly Command[]> {
  const group = (await COMMANDS_BY_WORD.get(words[0] ?? '')?.()) ?? []
  if (commandOf(words, group) !== null) return group
  return (await Promise.all([...COMMANDS_BY_WORD.values()].map(load => load()))).flat()
}
