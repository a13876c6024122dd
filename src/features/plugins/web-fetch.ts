/** Web fetch: offers the model the web_fetch server tool with these settings, as if the caller had listed it. */
import type { Plugin } from '../../exchange/plugin.ts'
import type { PluginSettings } from '../../protocol/plugins.ts'
import type { Tool } from '../../protocol/tools.ts'

type Settings = Extract<PluginSettings, { id: 'web-fetch' }>

export function createWebFetchPlugin(): Plugin<'web-fetch'> {
  return {
    id: 'web-fetch',
    activate: settings =>
      settings === null
        ? null
        : {
            id: 'web-fetch',
            // The tool brings no text into the prompt.
            skipsRescan: true,
            prepare: ({ prompt }) => ({ ...prompt, tools: [...(prompt.tools ?? []), toolOf(settings)] }),
          },
  }
}

function toolOf({ id: _, ...settings }: Settings): Tool {
  const parameters = Object.fromEntries(Object.entries(settings).filter(([, value]) => value != null))
  return { type: 'gateway:web_fetch', parameters } as unknown as Tool
}
