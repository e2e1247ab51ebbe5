import { defineEventHandler, toWebRequest } from 'h3';
import { login } from '../../limits.mjs';

export default defineEventHandler((event) => login(toWebRequest(event), event));
