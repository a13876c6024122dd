/** The settings of server tools: `tools` of the configuration file. Pure. */
import { Type } from '@sinclair/typebox'
import { SearchEngineSchema } from './rows.ts'
import { group, Milliseconds, nullable, setting } from './setting.ts'

export const toolSettings = group({
  webSearch: group({
    engines: setting(
      Type.Array(SearchEngineSchema, { maxItems: 20 }),
      'the search engines of [web search](web.md); without one, only providers that search themselves do, and the simulator',
      { default: [] },
    ),
    default: setting(
      nullable(Type.String({ minLength: 1 })),
      'the `name` of the engine for requests that name none; default: the first one',
    ),
    timeoutMs: setting(Milliseconds, 'time until an engine has answered; deep searches take half a minute', {
      default: 30_000,
    }),
  }),
  webFetch: group({
    allowHttp: setting(Type.Boolean(), 'true: also plain HTTP, to public addresses', { default: false }),
    allowPrivate: setting(
      Type.Boolean(),
      'true: any address and port, over HTTP too. Every model with the tool, and so every text that it reads, can then make the gateway read addresses in its own network',
      { default: false },
    ),
    maxBytes: setting(
      Type.Integer({ minimum: 1, maximum: 52_428_800 }),
      'for one page; a thread holds at most 16 times as much',
      { default: 10_485_760 },
    ),
    timeoutMs: setting(Milliseconds, 'for one page: name, redirects and bytes', { default: 10_000 }),
  }),
  mcp: group({
    allowPrivate: setting(
      Type.Boolean(),
      'true: the server tool [mcp](mcp.md) may reach any address and port, over HTTP too. Every caller with a key can then make the gateway send requests into its own network',
      { default: false },
    ),
  }),
})
