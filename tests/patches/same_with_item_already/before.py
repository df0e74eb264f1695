with open_model("a") as model:
    model.set_attn_implementation("sdpa")
