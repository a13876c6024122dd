/**
 * Fields that a dialect shares with POST /responses under the same name. They are checked by the schemas of that body;
 * all but `model` may be null, because clients of typed APIs send null for unset fields. Pure.
 */
import { orNull } from '../protocol/json/schema.ts'
import { ResponsesRequest } from '../protocol/request.ts'

/** The fields of the Responses body. */
export const { properties: hub } = ResponsesRequest

/** Routing, plugins and settings of the gateway, and sampling fields that every dialect spells alike. */
export const SAME_NAME = {
  model: hub.model,
  models: orNull(hub.models),
  route: hub.route,
  provider: hub.provider,
  plugins: orNull(hub.plugins),
  preset: hub.preset,
  temperature: hub.temperature,
  top_p: hub.top_p,
  top_k: orNull(hub.top_k),
  frequency_penalty: hub.frequency_penalty,
  presence_penalty: hub.presence_penalty,
  seed: hub.seed,
  logit_bias: hub.logit_bias,
  min_p: hub.min_p,
  top_a: hub.top_a,
  repetition_penalty: hub.repetition_penalty,
  prediction: hub.prediction,
  parallel_tool_calls: hub.parallel_tool_calls,
  max_tool_calls: hub.max_tool_calls,
  stop_server_tools_when: orNull(hub.stop_server_tools_when),
  user: orNull(hub.user),
  session_id: orNull(hub.session_id),
  safety_identifier: hub.safety_identifier,
  prompt_cache_key: hub.prompt_cache_key,
  prompt_cache_options: hub.prompt_cache_options,
  cache_control: orNull(hub.cache_control),
  image_config: orNull(hub.image_config),
  trace: orNull(hub.trace),
  debug: orNull(hub.debug),
  store: hub.store,
  stream: hub.stream,
  background: hub.background,
}
